"""Replay: a finished turn is run again, streamed again, or checked against a new run.

A replay is a response of its own that names the original in `replay_of`. The original's events never change.
"""

from turnlog.app.replay.replays import Replays

__all__ = ["Replays"]

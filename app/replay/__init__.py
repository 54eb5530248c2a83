"""Replay: a finished turn is re-run, re-streamed, or checked against the original.

A replay is a response of its own that names the original in `replay_of`. The original's events never change.
"""

from turnlog.app.replay.replays import Replays

__all__ = ["Replays"]

"""Replay: a turn that is over is run again, told again, or checked against what it was.

A replay is a response of its own that names the original in `replay_of`. The original's events never change.
"""

from turnlog.app.replay.replays import Replays

__all__ = ["Replays"]

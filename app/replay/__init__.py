"""Replay: a turn that is over is run again, told again, or checked against what it was.

A replay is a response of its own that names the original in `replay_of`. The original's events never change.
"""

from app.replay.check import Verdict
from app.replay.replays import Replays
from app.replay.rerun import Changes

__all__ = ["Changes", "Replays", "Verdict"]

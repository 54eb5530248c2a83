"""Estimates `Retry-After` for refused requests (D-38)."""

from collections import deque
from math import ceil
from statistics import median

FIRST_GUESS_S = 5.0
"""The assumed turn duration until one has ended; one retry too late costs less than two too early."""

LONGEST_S = 120
"""Clients of the API give up rather than wait longer."""

_RECENT_TURNS = 32
_SPREAD = 0.2


class Pace:
    """How long the recent turns of a lane took."""

    def __init__(self) -> None:
        self._turns_s: deque[float] = deque(maxlen=_RECENT_TURNS)

    def note(self, turn_s: float) -> None:
        """Record the duration of a turn that has left its slot."""
        self._turns_s.append(turn_s)

    @property
    def median_turn_s(self) -> float:
        """The median duration of a recent turn."""
        return median(self._turns_s) if self._turns_s else FIRST_GUESS_S


def retry_after_s(waiting: int, capacity: int, median_turn_s: float, spread: float) -> int:
    """In how many seconds the requests waiting now will have run, 1 to 120.

    Args:
        capacity: how many turns run at once.
        spread: jitter from -1 to 1, drawn for each request, so that they do not all retry at once.
    """
    wait_s = min(waiting / capacity * median_turn_s, LONGEST_S)
    return max(1, min(ceil(wait_s * (1 + _SPREAD * spread)), LONGEST_S))

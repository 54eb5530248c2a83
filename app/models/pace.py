"""How soon there can be room: what a request that is refused is told to wait (D-38)."""

from collections import deque
from math import ceil
from statistics import median

FIRST_GUESS_S = 5.0
"""How long a turn takes as long as none has ended; one retry too late costs less than two too early."""

LONGEST_S = 120
"""Clients of the API give up instead of waiting longer."""

_RECENT_TURNS = 32
_SPREAD = 0.2


class Pace:
    """How long the recent turns of a lane took."""

    def __init__(self) -> None:
        self._turns_s: deque[float] = deque(maxlen=_RECENT_TURNS)

    def note(self, turn_s: float) -> None:
        """A turn has left its slot after so many seconds."""
        self._turns_s.append(turn_s)

    @property
    def median_turn_s(self) -> float:
        """How long a turn takes."""
        return median(self._turns_s) if self._turns_s else FIRST_GUESS_S


def retry_after_s(waiting: int, capacity: int, median_turn_s: float, spread: float) -> int:
    """In how many seconds those who wait now will have had their turn, 1 to 120.

    Args:
        capacity: how many turns run at once.
        spread: -1 to 1, another for each request, so that not all of them come back together.
    """
    wait_s = min(waiting / capacity * median_turn_s, LONGEST_S)
    return max(1, min(ceil(wait_s * (1 + _SPREAD * spread)), LONGEST_S))

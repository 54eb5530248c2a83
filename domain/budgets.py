"""What there is a bounded amount of, in numbers that an operator can watch."""

from collections.abc import Callable


class Budget:
    """A limit, how much of it is in use, and how often there was no more to be had.

    `limit` and `in_use` are in the unit that the name says. Any thread may count and read.
    """

    def __init__(self, name: str, limit: float, in_use: Callable[[], float] = lambda: 0) -> None:
        self.name = name
        self.limit = limit
        self.in_use = in_use
        self.reached = 0

    def reach(self, times: int = 1) -> None:
        """Count that somebody wanted more than there was."""
        self.reached += times

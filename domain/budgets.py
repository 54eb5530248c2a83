"""What there is a bounded amount of, in numbers that an operator can watch."""

from collections import Counter
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


class SharedBudget(Budget):
    """A budget of which each owner may hold at most as much as is left over, while there are several.

    One owner gets half of it, two a third each, and a newcomer always finds room: the dynamic threshold by
    which network switches share a buffer (Choudhury and Hahne, 1998). A lone holding may be of any size.

    Args:
        is_shared: whether there are several owners.
    """

    def __init__(self, name: str, limit: float, is_shared: Callable[[], bool] = lambda: False) -> None:
        super().__init__(name, limit, lambda: self.total)
        self.total = 0
        self._is_shared = is_shared
        self._held: Counter[str] = Counter()

    def held_by(self, owner: str) -> int:
        """How much the owner holds."""
        return self._held[owner]

    def resize(self, owner: str, before: int, after: int) -> bool:
        """Change one holding of the owner's; False if it may not grow so much, and nothing has changed."""
        if after > before and not self._fits(owner, before, after):
            self.reach()
            return False
        self.total += after - before
        self._held[owner] += after - before
        if not self._held[owner]:
            del self._held[owner]  # owners come and go
        return True

    def _fits(self, owner: str, before: int, after: int) -> bool:
        total = self.total - before + after
        own = self._held[owner] - before + after
        if total > self.limit:
            return total == after
        return not self._is_shared() or own == after or own <= self.limit - total

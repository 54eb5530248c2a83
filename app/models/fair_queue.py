"""A queue in which owners take turns, so that a long line of one holds up nobody else."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting")


class FairQueue(Generic[Waiting]):
    """Round robin over owners; the line of one owner is served in order of arrival."""

    def __init__(self) -> None:
        # In the order of turns; an owner without anything waiting has no line.
        self._lines: dict[str, deque[Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def count_of(self, owner: str) -> int:
        """How many of the owner's wait."""
        return len(self._lines.get(owner, ()))

    def add(self, owner: str, waiting: Waiting) -> None:
        """Wait behind the owner's others."""
        self._lines.setdefault(owner, deque()).append(waiting)

    def take(self, is_eligible: Callable[[str], bool] = lambda _: True) -> Waiting | None:
        """The first of the eligible owner whose turn it is; None if there is none.

        The owner's line goes behind all others.
        """
        owner = next(filter(is_eligible, self._lines), None)
        if owner is None:
            return None
        line = self._lines.pop(owner)
        taken = line.popleft()
        if line:
            self._lines[owner] = line
        return taken

    def discard(self, owner: str, waiting: Waiting) -> None:
        """Take it out, wherever it stands; no effect if it is not there."""
        line = self._lines.get(owner, ())
        if waiting in line:
            self._lines[owner].remove(waiting)
            if not self._lines[owner]:
                del self._lines[owner]

"""One budget of memory for weights, the running turns and the warm caches."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

Use = Literal["weights", "running", "warm"]


class Memory:
    """Grants reservations in order of arrival, as far as the budget goes.

    Small reservations do not overtake a big one while the end of the running turns will make room for it. If
    it has to wait until a model is idle, they do: else turns of that model would wait for it, and it for
    them.

    Invariant: the bytes of all granted reservations are at most the budget.

    Args:
        budget_bytes: how much there is; None grants everything.
    """

    def __init__(self, budget_bytes: int | None) -> None:
        self.budget_bytes = budget_bytes
        self.used: Counter[Use] = Counter()
        self._waiting: deque[MemoryReservation] = deque()
        self._reclaim: Callable[[int], int] = _nothing_to_reclaim
        self._held_bytes: Callable[[], int] = lambda: 0
        self._granting = False

    def reclaim_by(self, reclaim: Callable[[int], int]) -> None:
        """Have `reclaim` give up bytes that are missing, now or soon; it says how many it cannot."""
        self._reclaim = reclaim

    def count_held(self, held_bytes: Callable[[], int]) -> None:
        """Have the budget count what is really held, where that is more than what is claimed."""
        self._held_bytes = held_bytes

    @property
    def free_bytes(self) -> float:
        """What is neither claimed nor held; infinite without a budget."""
        if self.budget_bytes is None:
            return float("inf")
        return self.budget_bytes - max(self.used.total(), self._held_bytes())

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    def take(self, use: Use, count_bytes: int) -> "MemoryReservation | None":
        """A reservation that is granted now, without reclaiming anything; None if there is no room."""
        if self._waiting or count_bytes > self.free_bytes:
            return None
        reservation = MemoryReservation(self, use, count_bytes, enter=lambda: None)
        self._grant(reservation)
        return reservation

    def ask(self, use: Use, count_bytes: int, enter: Callable[[], None]) -> "MemoryReservation":
        """A reservation that is granted when it is its turn and there is room; `enter` is called then."""
        reservation = MemoryReservation(self, use, count_bytes, enter)
        self._waiting.append(reservation)
        self.look_again()
        return reservation

    def look_again(self) -> None:
        """Grant what can be granted; called when something was given back or may be reclaimed now."""
        if self._granting:
            return  # reclaiming gives reservations back, and the loop below sees it
        self._granting = True
        try:
            while reservation := self._next():
                self._waiting.remove(reservation)
                self._grant(reservation)
                reservation.enter()
        finally:
            self._granting = False

    def suffices_after_turns(self, count_bytes: int) -> bool:
        """Whether there is room, or will be once the running turns have ended; gives up what it can."""
        missing_bytes = count_bytes - self.free_bytes
        return missing_bytes <= 0 or self._reclaim(int(missing_bytes)) <= self.used["running"]

    def _next(self) -> "MemoryReservation | None":
        for reservation in list(self._waiting):
            comes = self.suffices_after_turns(reservation.count_bytes)
            if reservation.count_bytes <= self.free_bytes:
                return reservation
            if comes:
                return None
        return None

    def _grant(self, reservation: "MemoryReservation") -> None:
        reservation.granted = True
        self.used[reservation.use] += reservation.count_bytes

    def _leave(self, reservation: "MemoryReservation") -> None:
        if reservation.granted:
            reservation.granted = False
            self.used[reservation.use] -= reservation.count_bytes
        elif reservation in self._waiting:
            self._waiting.remove(reservation)
        self.look_again()

    def _resize(self, reservation: "MemoryReservation", count_bytes: int) -> None:
        self.used[reservation.use] += count_bytes - reservation.count_bytes
        reservation.count_bytes = count_bytes
        self.look_again()


class MemoryReservation:
    """Some of the budget: waited for, then held until it is given back."""

    __slots__ = ("_memory", "count_bytes", "enter", "granted", "use")

    def __init__(self, memory: Memory, use: Use, count_bytes: int, enter: Callable[[], None]) -> None:
        self._memory = memory
        self.use: Use = use
        self.count_bytes = count_bytes
        self.enter = enter
        self.granted = False

    def resize(self, count_bytes: int) -> None:
        """Correct a granted reservation by what was really taken."""
        assert self.granted, "only what was granted is known"
        self._memory._resize(self, count_bytes)

    def release(self) -> None:
        """Give it back, or stop waiting for it; without effect the second time."""
        self._memory._leave(self)


def _nothing_to_reclaim(missing_bytes: int) -> int:
    """What is called while there is nothing that could be given up."""
    return missing_bytes

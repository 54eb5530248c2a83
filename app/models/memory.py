"""One memory budget for weights, running turns and the prefix cache."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

Use = Literal["weights", "running", "warm"]


class Memory:
    """Grants reservations in order of arrival, within the budget.

    Small reservations do not overtake a big one that fits once the running turns have ended. If the big one
    needs a model to become idle, they do overtake it, to prevent a deadlock with that model's turns.

    Invariant: the bytes of all granted reservations are at most the budget.

    Args:
        budget_bytes: the budget; None grants everything.
    """

    def __init__(self, budget_bytes: int | None) -> None:
        self.budget_bytes = budget_bytes
        self.used: Counter[Use] = Counter()
        self._waiting: deque[MemoryReservation] = deque()
        self._reclaim: Callable[[int], int] = _nothing_to_reclaim
        self._held_bytes: Callable[[], int] = lambda: 0
        self._granting = False

    def reclaim_by(self, reclaim: Callable[[int], int]) -> None:
        """Use `reclaim` to free missing bytes, now or soon; it returns how many it cannot free."""
        self._reclaim = reclaim

    def count_held(self, held_bytes: Callable[[], int]) -> None:
        """Count the bytes really held if they are more than those reserved."""
        self._held_bytes = held_bytes

    @property
    def free_bytes(self) -> float:
        """Bytes neither reserved nor held; infinite without a budget."""
        if self.budget_bytes is None:
            return float("inf")
        return self.budget_bytes - max(self.used.total(), self._held_bytes())

    @property
    def is_waited_for(self) -> bool:
        """Whether a reservation is waiting for room."""
        return bool(self._waiting)

    def take(self, use: Use, count_bytes: int) -> "MemoryReservation | None":
        """Reserve immediately, without reclaiming anything; None if there is no room."""
        if self._waiting or count_bytes > self.free_bytes:
            return None
        reservation = MemoryReservation(self, use, count_bytes, enter=lambda: None)
        self._grant(reservation)
        return reservation

    def ask(self, use: Use, count_bytes: int, enter: Callable[[], None]) -> "MemoryReservation":
        """Queue a reservation; `enter` is called when it is granted."""
        reservation = MemoryReservation(self, use, count_bytes, enter)
        self._waiting.append(reservation)
        self.look_again()
        return reservation

    def look_again(self) -> None:
        """Grant what fits; call it when memory was released or may have become reclaimable."""
        if self._granting:
            return  # reclaiming releases reservations; the outer call's loop takes them into account
        self._granting = True
        try:
            while reservation := self._next():
                self._waiting.remove(reservation)
                self._grant(reservation)
                reservation.enter()
        finally:
            self._granting = False

    def suffices_after_turns(self, count_bytes: int) -> bool:
        """Whether there is room, or will be once the running turns have ended; reclaims what it can."""
        missing_bytes = count_bytes - self.free_bytes
        return missing_bytes <= 0 or self._reclaim(int(missing_bytes)) <= self.used["running"]

    def _next(self) -> "MemoryReservation | None":
        for reservation in list(self._waiting):
            will_fit = self.suffices_after_turns(reservation.count_bytes)
            if reservation.count_bytes <= self.free_bytes:
                return reservation
            if will_fit:
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
    """A share of the budget: queued, then held until it is released."""

    __slots__ = ("_memory", "count_bytes", "enter", "granted", "use")

    def __init__(self, memory: Memory, use: Use, count_bytes: int, enter: Callable[[], None]) -> None:
        self._memory = memory
        self.use: Use = use
        self.count_bytes = count_bytes
        self.enter = enter
        self.granted = False

    def resize(self, count_bytes: int) -> None:
        """Change the size of a granted reservation."""
        assert self.granted, "a reservation is granted before it is resized"
        self._memory._resize(self, count_bytes)

    def release(self) -> None:
        """Give it back, or stop waiting; no effect the second time."""
        self._memory._leave(self)


def _nothing_to_reclaim(missing_bytes: int) -> int:
    """The default `reclaim`: there is nothing to free."""
    return missing_bytes

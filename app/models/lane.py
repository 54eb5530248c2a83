"""The lane of one model: admission, queue and running slots (R-030 … R-041, R-078 … R-081).

A request is one unit of the lane's budget from its admission to its end: first as a reservation, while it
waits for anything else, then as a slot. Everything here is synchronous; waiters are notified by callback.
Owners share places and waiting room, so that no one of them keeps the others out (decision 20).
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from turnlog.app.models.fair_queue import FairQueue
from turnlog.app.models.pace import Pace, retry_after_s
from turnlog.domain.errors import OwnersShareError, QueueFullError
from turnlog.domain.owners import LOCAL_OWNER

Enter = Callable[[], None]
"""Called once, when the slot may run; immediately if there is room."""


class LaneCounts(NamedTuple):
    """How many requests run, are queued, and hold a reservation without a slot (R-041)."""

    active: int
    queued: int
    reservations: int


class Sharing(NamedTuple):
    """Whether there are several owners, and what to call when there is no room.

    `full` is called when a request is refused, `crowded` when a turn has to wait for another of its owner
    though there is a free place.
    """

    is_shared: Callable[[], bool] = lambda: False
    full: Callable[[], None] = lambda: None
    crowded: Callable[[], None] = lambda: None


ALONE = Sharing()


class Lane:
    """Lets at most `capacity` turns run at once. Owners take turns, each in order of arrival (R-080, R-081).

    Invariant: active + queued + reservations ≤ max_waiting + capacity, checked in one place (R-036).
    Yielding turns, such as those of a bulk replay, wait outside the queue: they run only when no other turn
    is queued, and do not count towards the budget until then.

    Args:
        capacity: how many turns the engine runs at once; 1 is the exclusive lane (R-078).
        max_waiting: how many more requests may wait; None for no limit.
        spread: jitter from -1 to 1, drawn for each refusal (`retry_after_s`).
        sharing: among several owners, one has a part of the places only, and of the budget at most as much as
            is left over.
    """

    def __init__(
        self,
        capacity: int,
        max_waiting: int | None,
        spread: Callable[[], float] = lambda: 0.0,
        sharing: Sharing = ALONE,
    ) -> None:
        self.capacity = capacity
        self.max_waiting = max_waiting
        self.pace = Pace()
        self._spread = spread
        self._sharing = sharing
        self._active: set[Slot] = set()
        self._queue: FairQueue[Slot] = FairQueue()
        self._yielding: FairQueue[Slot] = FairQueue()
        self._reservations: set[Reservation] = set()

    @property
    def counts(self) -> LaneCounts:
        """The current use of the budget."""
        return LaneCounts(len(self._active), len(self._queue), len(self._reservations))

    def retry_after_s(self, waiting: int | None = None) -> int:
        """In how many seconds the waiting requests will have run: `waiting` of them, or all (D-38)."""
        counts = self.counts
        waiting = counts.queued + counts.reservations if waiting is None else waiting
        return retry_after_s(waiting, self.capacity, self.pace.median_turn_s, self._spread())

    @property
    def places_of_one(self) -> int:
        """How many turns of one owner may run at once."""
        return (
            max(1, self.capacity - max(1, self.capacity // 4)) if self._sharing.is_shared() else self.capacity
        )

    def reservation(self, owner: str = LOCAL_OWNER) -> "Reservation":
        """Admit a request that takes its slot later.

        Raises:
            QueueFullError: the budget is used up; nothing has changed.
            OwnersShareError: the owner has used up its share; nothing has changed.
        """
        self._refuse_if_full(owner)
        reservation = Reservation(self, owner)
        self._reservations.add(reservation)
        return reservation

    def yielding_reservation(self, owner: str = LOCAL_OWNER) -> "Reservation":
        """Admit a request that lets all others go first; never refused."""
        return Reservation(self, owner, yields=True)

    def slot(self, reservation: "Reservation | None", enter: Enter) -> "Slot":
        """Queue for a slot, converting the reservation into it atomically (R-034).

        A reservation that was released or is another lane's does not count: the slot is charged as if there
        were none (R-039).

        Raises:
            QueueFullError, OwnersShareError: there was no reservation and no room; nothing has changed.
        """
        owner = reservation.owner if reservation else LOCAL_OWNER
        slot = Slot(self, owner, enter)
        if reservation and reservation.yields and reservation.lane is self:
            self._yielding.add(owner, slot)
        else:
            if reservation in self._reservations:
                self._reservations.discard(reservation)
            else:
                self._refuse_if_full(owner)
            self._queue.add(owner, slot)
        self._call_next()
        if slot not in self._active and len(self._active) < self.capacity:
            self._sharing.crowded()
        return slot

    def _refuse_if_full(self, owner: str) -> None:
        if self.max_waiting is None:
            return
        counts = self.counts
        left = self.max_waiting + self.capacity - sum(counts)
        if left <= 0:
            self._sharing.full()
            used = f"{counts.active + counts.queued} running or queued and {counts.reservations} admitted"
            raise QueueFullError(used, self.max_waiting, self.retry_after_s())
        held = self._held_by(owner) if self._sharing.is_shared() else 0
        if held >= left:
            self._sharing.full()
            raise OwnersShareError("Queued turn", held, self.retry_after_s(held))

    def _held_by(self, owner: str) -> int:
        """How many units of the budget the owner has."""
        units: tuple[Slot | Reservation, ...] = (*self._active, *self._reservations)
        return self._queue.count_of(owner) + sum(each.owner == owner for each in units)

    @property
    def _is_full(self) -> bool:
        return self.max_waiting is not None and sum(self.counts) >= self.max_waiting + self.capacity

    def _call_next(self) -> None:
        while len(self._active) < self.capacity and (slot := self._next()):
            self._active.add(slot)
            slot.enter()

    def _next(self) -> "Slot | None":
        running, most = Counter(slot.owner for slot in self._active), self.places_of_one
        slot = self._queue.take(lambda owner: running[owner] < most)
        if slot is None and not self._is_full:
            slot = self._yielding.take(lambda owner: running[owner] < most)
        return slot

    def _release(self, reservation: "Reservation") -> None:
        self._reservations.discard(reservation)
        self._call_next()

    def _leave(self, slot: "Slot") -> None:
        if slot in self._active:
            self._active.discard(slot)
            self._call_next()
        else:
            for queue in (self._queue, self._yielding):
                queue.discard(slot.owner, slot)


class Reservation:
    """A claim on a future slot, held while a request waits for a model, a chain or a write (R-034)."""

    __slots__ = ("lane", "owner", "yields")

    def __init__(self, lane: Lane, owner: str, *, yields: bool = False) -> None:
        self.lane = lane
        self.owner = owner
        self.yields = yields

    def transfer(self, lane: Lane) -> "Reservation":
        """Exchange this for a reservation of `lane`; one of another lane is released first (R-044).

        Raises:
            QueueFullError, OwnersShareError: `lane` has no room.
        """
        if lane is self.lane:
            return self
        self.release()
        return lane.yielding_reservation(self.owner) if self.yields else lane.reservation(self.owner)

    def release(self) -> None:
        """Give it back; no effect once it was released or became a slot (R-035)."""
        self.lane._release(self)


class YieldingAdmission:
    """The admission of a yielding request, before its model is loaded."""

    def __init__(self, owner: str = LOCAL_OWNER) -> None:
        self._owner = owner

    def transfer(self, lane: Lane) -> Reservation:
        """The request's reservation of `lane`."""
        return lane.yielding_reservation(self._owner)

    def release(self) -> None:
        """Do nothing: it counts towards no budget."""


class Slot:
    """One request in the lane: queued, then running, until it is released."""

    __slots__ = ("_lane", "enter", "owner")

    def __init__(self, lane: Lane, owner: str, enter: Enter) -> None:
        self._lane = lane
        self.owner = owner
        self.enter = enter

    def release(self) -> None:
        """Free the slot for the next one; no effect the second time."""
        self._lane._leave(self)

"""The lane of one model: who may run now, who waits, and how many it admits (R-030 … R-041, R-078 … R-081).

A request is one unit of the lane's budget from its admission to its end: first as a permit, while it waits
for anything else, then as a place. Everything here is synchronous; whoever waits is told by a callback.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from turnlog.app.models.pace import Pace, retry_after_s
from turnlog.domain.errors import QueueFullError

Enter = Callable[[], None]
"""Called once, when the place may run; at once if a seat is free."""


class LaneCounts(NamedTuple):
    """How many requests run, wait, and hold a permit but have no place yet (R-041)."""

    active: int
    queued: int
    permits: int


class Lane:
    """Lets at most `capacity` turns run at once, the others in order of arrival (R-080, R-081).

    Invariant: active + queued + permits ≤ max_waiting + capacity, counted in one place for everyone (R-036).
    Turns that yield, such as those of a replay of many, wait beside the queue: they take a seat only when
    nobody else wants it, and are no part of the budget until then.

    Args:
        capacity: how many turns the engine runs at once; 1 is the exclusive lane (R-078).
        max_waiting: how many requests may wait beside them; None admits everyone.
        spread: -1 to 1, another for each refusal (`retry_after_s`).
    """

    def __init__(
        self, capacity: int, max_waiting: int | None, spread: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.capacity = capacity
        self.max_waiting = max_waiting
        self.pace = Pace()
        self._spread = spread
        self._active: set[Place] = set()
        self._queue: deque[Place] = deque()
        self._yielding: deque[Place] = deque()
        self._permits: set[Permit] = set()

    @property
    def counts(self) -> LaneCounts:
        """What the budget is spent on."""
        return LaneCounts(len(self._active), len(self._queue), len(self._permits))

    def retry_after_s(self, waiting: int | None = None) -> int:
        """In how many seconds those who wait will have had their turn; `waiting` of them, or all (D-38)."""
        counts = self.counts
        waiting = counts.queued + counts.permits if waiting is None else waiting
        return retry_after_s(waiting, self.capacity, self.pace.median_turn_s, self._spread())

    def permit(self) -> "Permit":
        """Admit a request that will ask for its place later.

        Raises:
            QueueFullError: the budget is spent; nothing has changed.
        """
        self._refuse_if_full()
        permit = Permit(self)
        self._permits.add(permit)
        return permit

    def yielding_permit(self) -> "Permit":
        """Admit a request that lets all others go first; it is never refused."""
        return Permit(self, yields=True)

    def place(self, permit: "Permit | None", enter: Enter) -> "Place":
        """Take a place; the permit becomes it, in the same step (R-034).

        A permit of another lane, or one that was released, is not this lane's: the call is charged like one
        without (R-039).

        Raises:
            QueueFullError: there was no permit and the budget is spent; nothing has changed.
        """
        place = Place(self, enter)
        if permit and permit.yields and permit.lane is self:
            self._yielding.append(place)
        else:
            if permit in self._permits:
                self._permits.discard(permit)
            else:
                self._refuse_if_full()
            self._queue.append(place)
        self._call_next()
        return place

    def _refuse_if_full(self) -> None:
        if self.max_waiting is not None and self._is_full:
            counts = self.counts
            spent = f"{counts.active + counts.queued} running or queued and {counts.permits} admitted"
            raise QueueFullError(spent, self.max_waiting, self.retry_after_s())

    @property
    def _is_full(self) -> bool:
        return self.max_waiting is not None and sum(self.counts) >= self.max_waiting + self.capacity

    def _call_next(self) -> None:
        while len(self._active) < self.capacity:
            if self._queue:
                place = self._queue.popleft()
            elif self._yielding and not self._is_full:
                place = self._yielding.popleft()
            else:
                return
            self._active.add(place)
            place.enter()

    def _release(self, permit: "Permit") -> None:
        self._permits.discard(permit)
        self._call_next()

    def _leave(self, place: "Place") -> None:
        if place in self._active:
            self._active.discard(place)
            self._call_next()
        else:
            for queue in (self._queue, self._yielding):
                if place in queue:
                    queue.remove(place)


class Permit:
    """The right to a place, held while a request waits for a model, a chain or a write (R-034)."""

    __slots__ = ("lane", "yields")

    def __init__(self, lane: Lane, *, yields: bool = False) -> None:
        self.lane = lane
        self.yields = yields

    def transfer(self, lane: Lane) -> "Permit":
        """A permit of `lane` for this one, which is given back first if it is another's (R-044).

        Raises:
            QueueFullError: `lane` has no room.
        """
        if lane is self.lane:
            return self
        self.release()
        return lane.yielding_permit() if self.yields else lane.permit()

    def release(self) -> None:
        """Give it back; without effect once it is given back or has become a place (R-035)."""
        self.lane._release(self)


class Yielding:
    """The admission of a request that yields, while its model is not there yet."""

    def transfer(self, lane: Lane) -> Permit:
        """Its permit of `lane`."""
        return lane.yielding_permit()

    def release(self) -> None:
        """Nothing to give back."""


class Place:
    """One request in the lane: waiting, then running, until it leaves."""

    __slots__ = ("_lane", "enter")

    def __init__(self, lane: Lane, enter: Enter) -> None:
        self._lane = lane
        self.enter = enter

    def leave(self) -> None:
        """Free the place and let the next one in; without effect the second time."""
        self._lane._leave(self)

"""A request's way to its model: admitted, then with a lease, until its turn has ended or it is refused.

A request for a model that is not loaded yet waits as a `ColdAdmission` (R-032, R-042 … R-046).
"""

from collections.abc import Awaitable, Callable

from turnlog.app.models.backlog import Backlog
from turnlog.app.models.lane import Lane, Reservation, YieldingAdmission
from turnlog.app.models.pace import FIRST_GUESS_S, retry_after_s
from turnlog.app.models.registry import Lease
from turnlog.domain.errors import ColdQueueFullError, QueueFullError


class ColdAdmissions:
    """At most `max_waiting` + 1 requests wait for each name that is being loaded; None admits everyone.

    When the model is there they become reservations of its lane, before anyone who comes later (R-043).

    Args:
        spread: -1 to 1, another for each refusal (`retry_after_s`).
    """

    def __init__(self, max_waiting: int | None, spread: Callable[[], float] = lambda: 0.0) -> None:
        self._max_waiting = max_waiting
        self._spread = spread
        self._waiting: dict[str, list[ColdAdmission]] = {}

    def count(self, name: str) -> int:
        """How many requests for `name` wait for its model or have not given their admission back."""
        return len(self._waiting.get(name, ()))

    def admit(self, name: str) -> "ColdAdmission":
        """Admit a request for `name`.

        Raises:
            ColdQueueFullError: too many wait for this name; other names are not concerned (R-045).
        """
        if self._max_waiting is not None and self.count(name) > self._max_waiting:
            # How many it will run at once is not known yet.
            wait_s = retry_after_s(self.count(name), 1, FIRST_GUESS_S, self._spread())
            raise ColdQueueFullError(self.count(name), self._max_waiting, wait_s)
        admission = ColdAdmission(self, name)
        self._waiting.setdefault(name, []).append(admission)
        return admission

    def publish(self, name: str, lane: Lane) -> None:
        """The model of `name` is there: whoever waits for it gets a reservation, or a refusal that stays."""
        for admission in self._waiting.get(name, ()):
            admission.bind(lane)

    def _forget(self, admission: "ColdAdmission") -> None:
        waiting = self._waiting[admission.name]
        waiting.remove(admission)
        if not waiting:
            del self._waiting[admission.name]


class ColdAdmission:
    """One request that waits for a model. It is one unit of exactly one budget until it is released."""

    def __init__(self, admissions: ColdAdmissions, name: str) -> None:
        self.name = name
        self._admissions: ColdAdmissions | None = admissions
        self._reservation: Reservation | None = None
        self._refusal: QueueFullError | None = None

    def bind(self, lane: Lane) -> None:
        """Become a reservation of `lane`, giving up the unit of another lane first (R-044).

        One that does not fit is refused for good, also if there is room later (R-043).
        """
        if self._refusal or (self._reservation and self._reservation.lane is lane):
            return
        if self._reservation:
            self._reservation.release()
        try:
            self._reservation = lane.reservation()
        except QueueFullError as refusal:
            self._refusal = refusal

    def transfer(self, lane: Lane) -> Reservation:
        """The reservation of `lane` that this has become; the admission ends with that.

        Raises:
            QueueFullError: the lane had no room for it.
        """
        assert self._admissions, "an admission is transferred before it is released"
        self.bind(lane)
        if self._refusal:
            raise self._refusal
        reservation, self._reservation = self._reservation, None
        assert reservation
        self.release()
        return reservation

    def release(self) -> None:
        """Give it back, with its reservation; without effect the second time."""
        if self._admissions:
            self._admissions._forget(self)
            self._admissions = None
        if self._reservation:
            self._reservation.release()
            self._reservation = None


Beginning = Reservation | ColdAdmission | YieldingAdmission


class Admission:
    """What one request holds of the model floor: one unit of one budget, and later a lease (R-034, R-066).

    Args:
        admission: a reservation of the model's lane, or an admission to wait until the model is there.
        take: loads the model if it must and takes the lease.
        released: called when everything was given back; the model may be idle now.
        backlog: what all requests hold while they wait.
    """

    def __init__(
        self,
        admission: Beginning,
        take: Callable[[], Awaitable[Lease]],
        released: Callable[[], None],
        backlog: Backlog,
    ) -> None:
        self._begun = admission
        self._take = take
        self._released = released
        self._backlog = backlog
        self._waiting_bytes = 0
        self._lease: Lease | None = None

    @property
    def lease(self) -> Lease:
        """What the request holds; it must have been taken."""
        assert self._lease, "a lease is taken before it is used"
        return self._lease

    @property
    def reservation(self) -> Reservation:
        """What the lane turns into a slot."""
        assert isinstance(self._begun, Reservation), "a lease comes with a reservation"
        return self._begun

    async def take_lease(self) -> Lease:
        """Wait until the model is there, and hold it (R-042, R-047).

        Raises:
            QueueFullError: the model is there, but its lane has no room for this request.
            EngineError, ModelUnavailableError: the model could not be loaded.
        """
        self._lease = await self._take()
        # Also a reservation: the name may have come to mean another model since it was given.
        self._begun = self._begun.transfer(self._lease.lane)
        return self._lease

    def weigh(self, size_bytes: int) -> None:
        """Say how much memory the request holds while it waits; nothing once it runs.

        Raises:
            BacklogFullError: what waits would hold more than it may.
        """
        self._backlog.resize(self._waiting_bytes, size_bytes)
        self._waiting_bytes = size_bytes

    def release(self) -> None:
        """Give everything back that has not become a slot; without effect the second time (R-035, R-390)."""
        self.weigh(0)
        self._begun.release()
        if self._lease:
            self._lease.release()
        self._released()

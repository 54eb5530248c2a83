"""A request's way to its model: admitted, then with a lease, until its turn has ended or it is refused.

A request for a model that is not loaded yet waits as a `ColdAdmission` (R-032, R-042 … R-046).
"""

from collections.abc import Awaitable, Callable

from turnlog.app.models.backlog import Backlog
from turnlog.app.models.lane import ALONE, Lane, Reservation, Sharing, YieldingAdmission
from turnlog.app.models.pace import FIRST_GUESS_S, retry_after_s
from turnlog.app.models.registry import Lease
from turnlog.domain.errors import ColdQueueFullError, OverloadError, OwnersShareError
from turnlog.domain.owners import LOCAL_OWNER


class ColdAdmissions:
    """Admits at most `max_waiting` + 1 requests for each name that is being loaded; None for no limit.

    Once the model is loaded they become reservations of its lane, ahead of any later request (R-043).

    Args:
        spread: jitter from -1 to 1, drawn for each refusal (`retry_after_s`).
        sharing: among several owners, one has at most as many as are left over.
    """

    def __init__(
        self,
        max_waiting: int | None,
        spread: Callable[[], float] = lambda: 0.0,
        sharing: Sharing = ALONE,
    ) -> None:
        self._max_waiting = max_waiting
        self._spread = spread
        self._sharing = sharing
        self._waiting: dict[str, list[ColdAdmission]] = {}

    def count(self, name: str) -> int:
        """How many requests for `name` wait for its model or have not released their admission."""
        return len(self._waiting.get(name, ()))

    def admit(self, name: str, owner: str = LOCAL_OWNER) -> "ColdAdmission":
        """Admit a request of `owner` for `name`.

        Raises:
            ColdQueueFullError: too many wait for this name; other names are not affected (R-045).
            OwnersShareError: too many of them are the owner's.
        """
        self._refuse_if_full(name, owner)
        admission = ColdAdmission(self, name, owner)
        self._waiting.setdefault(name, []).append(admission)
        return admission

    def _refuse_if_full(self, name: str, owner: str) -> None:
        if self._max_waiting is None:
            return
        count = self.count(name)
        # The model's capacity is not known yet.
        wait_s = retry_after_s(count, 1, FIRST_GUESS_S, self._spread())
        if count > self._max_waiting:
            self._sharing.full()
            raise ColdQueueFullError(count, self._max_waiting, wait_s)
        held = (
            sum(each.owner == owner for each in self._waiting.get(name, ()))
            if self._sharing.is_shared()
            else 0
        )
        if held >= self._max_waiting + 1 - count:
            self._sharing.full()
            raise OwnersShareError("Queued turn", held, wait_s)

    def publish(self, name: str, lane: Lane) -> None:
        """The model of `name` is loaded: each waiting request gets a reservation or a final refusal."""
        for admission in self._waiting.get(name, ()):
            admission.bind(lane)

    def _forget(self, admission: "ColdAdmission") -> None:
        waiting = self._waiting[admission.name]
        waiting.remove(admission)
        if not waiting:
            del self._waiting[admission.name]


class ColdAdmission:
    """One request waiting for a model. It counts towards exactly one budget until it is released."""

    def __init__(self, admissions: ColdAdmissions, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        self._admissions: ColdAdmissions | None = admissions
        self._reservation: Reservation | None = None
        self._refusal: OverloadError | None = None

    def bind(self, lane: Lane) -> None:
        """Become a reservation of `lane`, giving up the unit of another lane first (R-044).

        One that does not fit is refused for good, even if there is room later (R-043).
        """
        if self._refusal or (self._reservation and self._reservation.lane is lane):
            return
        if self._reservation:
            self._reservation.release()
        try:
            self._reservation = lane.reservation(self.owner)
        except OverloadError as refusal:
            self._refusal = refusal

    def transfer(self, lane: Lane) -> Reservation:
        """Turn the admission into a reservation of `lane`; the admission is released.

        Raises:
            QueueFullError, OwnersShareError: the lane had no room for it.
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
        """Give it back, with its reservation; no effect the second time."""
        if self._admissions:
            self._admissions._forget(self)
            self._admissions = None
        if self._reservation:
            self._reservation.release()
            self._reservation = None


Beginning = Reservation | ColdAdmission | YieldingAdmission


class Admission:
    """One request's hold on its model: one unit of one budget, and later a lease (R-034, R-066).

    Args:
        admission: a reservation of the model's lane, or an admission to wait for the model.
        take: takes the lease, loading the model if necessary.
        released: called when everything was given back; the model may be idle now.
        backlog: counts the memory of all waiting requests.
        owner: whose request it is.
    """

    def __init__(
        self,
        admission: Beginning,
        take: Callable[[], Awaitable[Lease]],
        released: Callable[[], None],
        backlog: Backlog,
        owner: str = LOCAL_OWNER,
    ) -> None:
        self._owner = owner
        self._begun = admission
        self._take = take
        self._released = released
        self._backlog = backlog
        self._waiting_bytes = 0
        self._lease: Lease | None = None

    @property
    def lease(self) -> Lease:
        """The request's lease; call `take_lease` first."""
        assert self._lease, "a lease is taken before it is used"
        return self._lease

    @property
    def reservation(self) -> Reservation:
        """The reservation that the lane converts into a slot."""
        assert isinstance(self._begun, Reservation), "a lease comes with a reservation"
        return self._begun

    async def take_lease(self) -> Lease:
        """Wait until the model is loaded, and hold it (R-042, R-047).

        Raises:
            QueueFullError, OwnersShareError: the model is loaded, but its lane has no room for this request.
            EngineError, ModelUnavailableError: the model could not be loaded.
        """
        self._lease = await self._take()
        # A reservation too: the name may have been rebound to another model since.
        self._begun = self._begun.transfer(self._lease.lane)
        return self._lease

    def weigh(self, size_bytes: int) -> None:
        """Record how much memory the request holds while it waits; 0 once it runs.

        Raises:
            BacklogFullError: the waiting requests would hold more than they may.
        """
        self._backlog.resize(self._waiting_bytes, size_bytes, self._owner)
        self._waiting_bytes = size_bytes

    def release(self) -> None:
        """Give back everything that has not become a slot; no effect the second time (R-035, R-390)."""
        self.weigh(0)
        self._begun.release()
        if self._lease:
            self._lease.release()
        self._released()

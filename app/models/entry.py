"""A request's way to its model: admitted, then with a lease, until its turn has ended or it is refused."""

from collections.abc import Awaitable, Callable

from app.models.cold import ColdAdmission
from app.models.lane import Permit, Yielding
from app.models.registry import Lease

Admission = Permit | ColdAdmission | Yielding


class Entry:
    """What one request holds of the model floor: one unit of one budget, and later a lease (R-034, R-066).

    Args:
        admission: a permit of the model's lane, or an admission to wait until the model is there.
        take: loads the model if it must and takes the lease.
        released: called when everything was given back; the model may be idle now.
    """

    def __init__(
        self,
        admission: Admission,
        take: Callable[[], Awaitable[Lease]],
        released: Callable[[], None],
    ) -> None:
        self._admission = admission
        self._take = take
        self._released = released
        self._lease: Lease | None = None

    @property
    def lease(self) -> Lease:
        """What the request holds; it must have been taken."""
        assert self._lease, "a lease is taken before it is used"
        return self._lease

    @property
    def permit(self) -> Permit:
        """What the lane turns into a place."""
        assert isinstance(self._admission, Permit), "a lease comes with a permit"
        return self._admission

    async def take_lease(self) -> Lease:
        """Wait until the model is there, and hold it (R-042, R-047).

        Raises:
            QueueFullError: the model is there, but its lane has no room for this request.
            EngineError, ModelUnavailableError: the model could not be loaded.
        """
        self._lease = await self._take()
        # Also a permit: the name may have come to mean another model since it was given.
        self._admission = self._admission.transfer(self._lease.lane)
        return self._lease

    def release(self) -> None:
        """Give everything back that has not become a place; without effect the second time (R-035, R-390)."""
        self._admission.release()
        if self._lease:
            self._lease.release()
        self._released()

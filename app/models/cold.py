"""Admission of requests for a model that is not loaded yet (R-032, R-042 … R-046)."""

from app.models.lane import Lane, Permit
from domain.errors import ColdQueueFullError, QueueFullError


class ColdAdmissions:
    """At most `max_waiting` + 1 requests wait for each name that is being loaded; None admits everyone.

    When the model is there they become permits of its lane, before anyone who comes later (R-043).
    """

    def __init__(self, max_waiting: int | None) -> None:
        self._max_waiting = max_waiting
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
            raise ColdQueueFullError(self.count(name), self._max_waiting)
        admission = ColdAdmission(self, name)
        self._waiting.setdefault(name, []).append(admission)
        return admission

    def publish(self, name: str, lane: Lane) -> None:
        """The model of `name` is there: whoever waits for it gets a permit, or a refusal that stays."""
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
        self._permit: Permit | None = None
        self._refusal: QueueFullError | None = None

    def bind(self, lane: Lane) -> None:
        """Become a permit of `lane`, giving up the unit of another lane first (R-044).

        One that does not fit is refused for good, also if there is room later (R-043).
        """
        if self._refusal or (self._permit and self._permit.lane is lane):
            return
        if self._permit:
            self._permit.release()
        try:
            self._permit = lane.permit()
        except QueueFullError as refusal:
            self._refusal = refusal

    def transfer(self, lane: Lane) -> Permit:
        """The permit of `lane` that this has become; the admission ends with that.

        Raises:
            QueueFullError: the lane had no room for it.
        """
        assert self._admissions, "an admission is transferred before it is released"
        self.bind(lane)
        if self._refusal:
            raise self._refusal
        permit, self._permit = self._permit, None
        assert permit
        self.release()
        return permit

    def release(self) -> None:
        """Give it back, with its permit; without effect the second time."""
        if self._admissions:
            self._admissions._forget(self)
            self._admissions = None
        if self._permit:
            self._permit.release()
            self._permit = None

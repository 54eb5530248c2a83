"""The lifecycle of a response: which trigger leads from which status to which, and by which event.

The table is the only place that defines this. A command asks the machine; a legal transition returns its
event; only applying the event changes the status, to the destination in the table. Replay applies events
without asking the machine, so a stricter future table can still read today's log.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from transitions import Machine

from turnlog.domain.errors import IllegalTransitionError
from turnlog.domain.events import (
    ContentExpired,
    GenerationStarted,
    MetadataChanged,
    PersistHardTimedOut,
    ResponseDeleted,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)


class Status(StrEnum):
    """A response's position in its lifecycle."""

    CREATED = "created"
    IN_PROGRESS = "in_progress"
    COMMITTED = "committed"
    FAILED = "failed"
    PERSISTED = "persisted"
    HARD_TIMED_OUT = "hard_timed_out"


LifecycleEvent = GenerationStarted | TurnCommitted | TurnFailed | TurnPersisted | PersistHardTimedOut


class Row(NamedTuple):
    """One line of the table: `trigger` leads from any of `sources` to `dest` and records an `event`."""

    trigger: str
    sources: tuple[Status, ...]
    dest: Status
    event: type[LifecycleEvent]


TABLE = (
    Row("start", (Status.CREATED,), Status.IN_PROGRESS, GenerationStarted),
    Row("commit", (Status.IN_PROGRESS,), Status.COMMITTED, TurnCommitted),
    Row("fail", (Status.CREATED, Status.IN_PROGRESS), Status.FAILED, TurnFailed),
    Row("persist", (Status.COMMITTED, Status.HARD_TIMED_OUT), Status.PERSISTED, TurnPersisted),
    Row("hard_time_out", (Status.COMMITTED,), Status.HARD_TIMED_OUT, PersistHardTimedOut),
)

# One machine for all responses. It has no model and only answers where a trigger leads from a status.
_MACHINE: Any = Machine(
    model=None,
    states=[status.value for status in Status],
    initial=Status.CREATED.value,
    transitions=[[row.trigger, [str(source) for source in row.sources], str(row.dest)] for row in TABLE],
    auto_transitions=False,
)
_TRIGGERS: dict[type, str] = {row.event: row.trigger for row in TABLE}
_SETTLED = (Status.PERSISTED, Status.FAILED)


def destination(status: Status, trigger: str) -> Status:
    """Where `trigger` leads from `status`.

    Raises:
        IllegalTransitionError: the table has no such transition.
    """
    for transition in _MACHINE.get_transitions(trigger, source=status.value):
        return Status(transition.dest)
    raise IllegalTransitionError(status, trigger)


_DESTINATIONS: dict[type, Status] = {row.event: destination(row.sources[0], row.trigger) for row in TABLE}


class Lifecycle:
    """The status of one response, and the commands that need nothing else.

    It holds no content, so a wedged write can outlive its turn cheaply (R-352).
    """

    __slots__ = ("status",)

    def __init__(self, status: Status = Status.CREATED) -> None:
        self.status = status

    def check(self, event: type[LifecycleEvent]) -> None:
        """Check that the table allows an event in the current status.

        Raises:
            IllegalTransitionError: it does not; nothing has changed.
        """
        destination(self.status, _TRIGGERS[event])

    def move(self, event: LifecycleEvent) -> None:
        """Move to the event's destination. Never refuses: the log is always right."""
        self.status = _DESTINATIONS[type(event)]

    def persist(self, *, at_ms: int, write_ms: float) -> TurnPersisted:
        """The committed turn was stored, `write_ms` milliseconds after the write began.

        Raises:
            IllegalTransitionError: the turn is not committed, or is already persisted.
        """
        self.check(TurnPersisted)
        event = TurnPersisted(at_ms=at_ms, write_ms=write_ms)
        self.move(event)
        return event

    def hard_time_out(self, *, at_ms: int, after_ms: float) -> PersistHardTimedOut:
        """The write of the committed turn has not settled after `after_ms` milliseconds.

        Raises:
            IllegalTransitionError: the turn is not committed, or its write has already settled or timed out.
        """
        self.check(PersistHardTimedOut)
        event = PersistHardTimedOut(at_ms=at_ms, after_ms=after_ms)
        self.move(event)
        return event

    def delete(self, *, at_ms: int, asked_by: str) -> ResponseDeleted:
        """The response is deleted for its clients. Outside the table: the status stays (D-40).

        Raises:
            IllegalTransitionError: more events of the turn may follow.
        """
        self._check_settled("delete")
        return ResponseDeleted(at_ms=at_ms, asked_by=asked_by)

    def change_metadata(self, metadata: dict[str, Any], *, at_ms: int) -> MetadataChanged:
        """The response's owner gives it other metadata. Outside the table: the status stays.

        Raises:
            IllegalTransitionError: more events of the turn may follow.
        """
        self._check_settled("change the metadata of")
        return MetadataChanged(at_ms=at_ms, metadata=metadata)

    def expire(self, *, at_ms: int) -> ContentExpired:
        """Remove the response's content. Not in the table, because the status does not change (D-14).

        Raises:
            IllegalTransitionError: more events of the turn may follow.
        """
        self._check_settled("expire")
        return ContentExpired(at_ms=at_ms)

    def _check_settled(self, trigger: str) -> None:
        if self.status not in _SETTLED:
            raise IllegalTransitionError(self.status, trigger)


def diagram() -> str:
    """The table as a Mermaid state diagram, for docs/lifecycle.md."""
    lines = ["stateDiagram-v2", f"    [*] --> {Status.CREATED}: create / ResponseCreated"]
    lines += [
        f"    {source} --> {row.dest}: {row.trigger} / {row.event.__name__}"
        for row in TABLE
        for source in row.sources
    ]
    leaving = {source for row in TABLE for source in row.sources}
    lines += [f"    {status} --> [*]" for status in Status if status not in leaving]
    return "\n".join(lines)

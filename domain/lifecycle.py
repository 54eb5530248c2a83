"""The lifecycle of a response: which trigger leads from which status to which, and by which event.

The table holds this and nothing else does. A command asks the machine; a legal transition applies the
event; only applying the event changes the status. Replay applies events and never asks the machine.
"""

from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from transitions import Machine, MachineError, Transition

from turnlog.domain.errors import IllegalTransitionError
from turnlog.domain.events import (
    GenerationStarted,
    PersistHardTimedOut,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)


class Status(StrEnum):
    """Where a response is in its life."""

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

_TRIGGERS: dict[type, str] = {row.event: row.trigger for row in TABLE}


class Subject(Protocol):
    """What the machine drives: something with a status that applying an event changes."""

    @property
    def state(self) -> str:
        """The status' value, under the name that `transitions` reads; it would take an enum for its name."""

    def apply(self, event: ResponseEvent) -> None:
        """Take the event in; it has happened."""


class _EventTransition(Transition):
    """A transition whose effect is an event: the machine decides, the event changes the status."""

    def _change_state(self, event_data: Any) -> None:
        (event,) = event_data.args
        event_data.model.apply(event)
        assert event_data.model.state == self.dest, f"{event} does not lead to {self.dest}"


class _Lifecycle(Machine):
    transition_cls = _EventTransition


# One machine for all responses: it keeps none of them, so a response costs nothing to bind.
_MACHINE: Any = _Lifecycle(
    model=None,
    states=[status.value for status in Status],
    initial=Status.CREATED.value,
    transitions=[[row.trigger, [str(source) for source in row.sources], str(row.dest)] for row in TABLE],
    auto_transitions=False,
    send_event=True,
)


def record(subject: Subject, event: LifecycleEvent) -> None:
    """Ask the machine whether `event` may happen to `subject` now and, if so, apply it.

    Raises:
        IllegalTransitionError: the table has no such line; nothing has changed.
    """
    trigger = _TRIGGERS[type(event)]
    try:
        _MACHINE.events[trigger].trigger(subject, event)
    except MachineError:
        raise IllegalTransitionError(subject.state, trigger) from None


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

"""The events of a response as text for people: one line an event, with the time since the first one."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from turnlog.app.cli.printing import plain_table, printable, shortened
from turnlog.domain.events import (
    ContentExpired,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    MetadataChanged,
    PersistHardTimedOut,
    ReasoningDropped,
    Recorded,
    ResponseCreated,
    ResponseDeleted,
    ResponseEvent,
    SteerAccepted,
    SteersCommitted,
    SteersFailed,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
    TurnRequeued,
)
from turnlog.domain.items import FunctionCallItem, Item, ReasoningItem
from turnlog.domain.lifecycle import Status
from turnlog.domain.response import Response

_COLOURS = {
    Status.CREATED: "cyan",
    Status.IN_PROGRESS: "yellow",
    Status.COMMITTED: "green",
    Status.PERSISTED: "bold green",
    Status.FAILED: "bold red",
    Status.HARD_TIMED_OUT: "bold magenta",
}


def timeline(events: Sequence[Recorded]) -> Table:
    """The story of one response; the state column says where each event has led."""
    table = plain_table()
    table.add_column("#", justify="right", style="dim")
    table.add_column("time", justify="right", style="dim", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("event", overflow="fold")
    for recorded, status in _states(events):
        elapsed_s = (recorded.event.at_ms - events[0].event.at_ms) / 1000
        state = Text(status or "", style=_COLOURS[status] if status else "")
        what = "expired" if recorded.event.expired_sha256 else describe(recorded.event)
        table.add_row(str(recorded.version), f"+{elapsed_s:.3f}s", state, Text(printable(what)))
    return table


def _states(events: Sequence[Recorded]) -> Iterator[tuple[Recorded, Status | None]]:
    """Each event with the status it led to; None where that did not change."""
    response: Response | None = None
    for recorded in events:
        before = response.status if response else None
        if response is None:
            assert isinstance(recorded.event, ResponseCreated)
            response = Response(recorded.event)
        else:
            response.apply(recorded.event)
        yield recorded, response.status if response.status != before else None


def describe(event: ResponseEvent) -> str:  # noqa: C901, PLR0911, PLR0912  # one sentence for each event
    """What happened, in a sentence."""
    match event:
        case ResponseCreated():
            asked = event.input[-1].content if event.input else ""
            return f"request to {event.model}: {_short(asked)}"
        case GenerationStarted():
            return f"generation started: {event.prompt.tokens} prompt tokens ({event.cache_class})"
        case ItemOpened(item=item):
            return f"{_kind(item)} started"
        case ItemExtended(deltas=deltas):
            return f"{_short(''.join(deltas))} ({len(deltas)} delta{'s' * (len(deltas) != 1)})"
        case ItemClosed(item=item, listed=listed):
            return f"{_kind(item)} finished{'' if listed else ', not part of the answer'}"
        case ReasoningDropped(text=text):
            return f"late reasoning, not sent to the client: {_short(text)}"
        case TurnCommitted(status=status, usage=usage):
            return f"{status}: {usage.output_tokens} output tokens"
        case TurnFailed(reason=reason, message=message):
            return f"failed ({reason}): {message}"
        case TurnPersisted(write_ms=write_ms):
            return f"stored after {write_ms:.1f} ms"
        case PersistHardTimedOut(after_ms=after_ms):
            return f"not stored after {after_ms / 1000:.0f} s; the write may still succeed"
        case SteerAccepted(input=messages):
            return f"steered: {_short(messages[-1].content if messages else '')}"
        case SteersCommitted(successor=successor):
            return f"steering input continued in {successor}"
        case SteersFailed(code=code):
            return f"steering input not used: {code}"
        case TurnRequeued():
            return "queued again when the server was restarted"
        case MetadataChanged():
            return "given other metadata"
        case ResponseDeleted(asked_by=asked_by):
            return f"deleted by {asked_by}"
        case ContentExpired():
            return "expired: the content was removed"


def _kind(item: Item) -> str:
    match item:
        case FunctionCallItem(name=name):
            return f"call of {name}"
        case ReasoningItem():
            return "reasoning"
        case _:
            return "message"


def _short(text: str) -> str:
    return f"“{shortened(text, 100)}”"

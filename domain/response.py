"""The response: one turn as an event-sourced aggregate. It is what its events fold to."""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from turnlog.domain import lifecycle
from turnlog.domain.events import (
    ContentExpired,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    PersistHardTimedOut,
    ReasoningDropped,
    ResponseCreated,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.lifecycle import LifecycleEvent, Status


class OpenItem:
    """An item that has begun and not yet ended, with the text it has so far."""

    __slots__ = ("item", "output_index", "pieces")

    def __init__(self, output_index: int, item: Item) -> None:
        self.output_index = output_index
        self.item = item
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """Everything that was streamed into the item."""
        return "".join(self.pieces)


class Response:
    """One turn. Made by its `ResponseCreated`, changed by applying events, never otherwise.

    `items` are the closed, listed output items in order; `open_items` those still growing, by id.
    """

    __slots__ = ("created", "ended", "items", "open_items", "started", "status")

    def __init__(self, created: ResponseCreated) -> None:
        self.created = created
        self.status = Status.CREATED
        self.started: GenerationStarted | None = None
        self.items: list[Item] = []
        self.open_items: dict[str, OpenItem] = {}
        self.ended: TurnCommitted | TurnFailed | None = None

    @property
    def id(self) -> str:
        """The response's typed id."""
        return self.created.response_id

    @property
    def state(self) -> str:
        """The status as the machine reads it."""
        return self.status.value

    def record(self, event: LifecycleEvent) -> None:
        """Let a lifecycle event happen, if the lifecycle admits it now.

        Raises:
            IllegalTransitionError: the table has no such transition; nothing has changed.
        """
        lifecycle.record(self, event)

    def apply(self, event: ResponseEvent) -> None:  # one case for each event
        """Take in what has happened. Never refuses: the log is always right."""
        match event:
            case ResponseCreated():
                self.created = event
            case GenerationStarted():
                self.started = event
                self.status = Status.IN_PROGRESS
            case ItemOpened():
                self.open_items[event.item.id] = OpenItem(event.output_index, event.item)
            case ItemExtended():
                self.open_items[event.item_id].pieces.extend(event.deltas)
            case ItemClosed():
                self.open_items.pop(event.item.id, None)
                if event.listed:
                    self.items.append(event.item)
            case ReasoningDropped() | ContentExpired():
                pass
            case TurnCommitted():
                self.ended = event
                self.status = Status.COMMITTED
            case TurnFailed():
                self.ended = event
                self.status = Status.FAILED
                self.items = [_cut_short(item) for item in (*self.items, *event.calls)]
            case TurnPersisted():
                self.status = Status.PERSISTED
            case PersistHardTimedOut():
                self.status = Status.HARD_TIMED_OUT
            case _:
                assert_never(event)


def fold(events: Iterable[ResponseEvent]) -> Response:
    """The response that these events tell of; the first one is its `ResponseCreated`."""
    story = iter(events)
    created = next(story)
    assert isinstance(created, ResponseCreated), f"a response begins with {created}"
    response = Response(created)
    for event in story:
        response.apply(event)
    return response


def fold_stored(events: Iterable[ResponseEvent]) -> Response:
    """The response that these *stored* events tell of.

    A stored `TurnCommitted` is persisted, whether or not the event that says how long it took followed.
    """
    response = fold(events)
    if response.status in (Status.COMMITTED, Status.HARD_TIMED_OUT):
        response.status = Status.PERSISTED
    return response


def api_status(response: Response) -> str:
    """The status in the API's words: queued, in_progress, completed, incomplete, failed or cancelled."""
    match response.ended:
        case TurnCommitted(status=status):
            return status
        case TurnFailed(reason="cancelled"):
            return "cancelled"
        case TurnFailed():
            return "failed"
        case None:
            return "queued" if response.status is Status.CREATED else "in_progress"


def _cut_short(item: Item) -> Item:
    """The item as a failed turn shows it (R-321): whatever was offered is incomplete."""
    match item:
        case MessageItem() | FunctionCallItem() | CustomCallItem():
            return replace(item, status="incomplete")
        case ReasoningItem():
            return item
        case _:
            assert_never(item)

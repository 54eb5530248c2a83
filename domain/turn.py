"""The turn assembler: what an engine says, chunk by chunk, becomes events. No I/O, no clock.

`TurnAssembler` follows the rules by which a model's raw output turns into items (R-267 … R-289): reasoning
closes before text, structural tags stay hidden, the engine's final text is authoritative, and calls are
offered only once the turn is committed. `epilogue` ends a turn that goes no further (R-318 … R-321).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

from msgspec.structs import replace

from turnlog.domain.events import (
    FailureReason,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    Outcome,
    ReasoningDropped,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
)
from turnlog.domain.ids import IdKind
from turnlog.domain.items import (
    CallItem,
    CustomCallItem,
    FunctionCallItem,
    Item,
    ItemStatus,
    Logprob,
    MessageItem,
    ReasoningItem,
)
from turnlog.domain.ports import End, EngineCall, EngineChunk, ReasoningChunk, Spent, TextChunk
from turnlog.domain.response import OpenItem, Response
from turnlog.domain.tags import Eraser, TagBuffer, overlap
from turnlog.domain.tokens import pack
from turnlog.domain.tools import Toolbox, ToolChoice, custom_input
from turnlog.domain.usage import Timing, Usage

Events = list[ResponseEvent]

NO_TOOLS = Toolbox((), ToolChoice())


class TurnAssembler:
    """Chunks in, events out. `finish` ends it; after that it must not be fed.

    Args:
        new_id: makes the id of an item when it is opened.
        toolbox: knows whose the calls are.
        parallel_calls: whether the turn may end in more than one call.
    """

    def __init__(
        self, new_id: Callable[[IdKind], str], toolbox: Toolbox = NO_TOOLS, *, parallel_calls: bool = True
    ) -> None:
        self._new_id = new_id
        self._toolbox = toolbox
        self._parallel_calls = parallel_calls
        self._logprobs: list[Logprob] = []
        self._logprobs_told: list[Logprob] = []
        self._tags = TagBuffer()
        self._think_end = Eraser("</think>")
        self._items_opened = 0
        self._reasoning: OpenItem | None = None
        self._reasoning_closed = False
        self._message: OpenItem | None = None

    def receive(self, chunk: EngineChunk, at_ms: int) -> Events:
        """What follows from a piece of the engine's stream; possibly nothing."""
        match chunk:
            case ReasoningChunk(text=text):
                return self._think(self._think_end.push(text), at_ms)
            case TextChunk(text=text, logprobs=logprobs):
                self._logprobs += logprobs
                # The first text ends the reasoning, even if the text itself is held back.
                return [*self._close_reasoning(None, at_ms), *self._say(self._tags.push(text), at_ms)]
            case _:
                assert_never(chunk)

    def finish(self, end: End, timing: Timing, at_ms: int) -> Events:
        """Everything that follows from the engine's end: closings, calls, and the event that ends the turn.

        Args:
            timing: how long the parts of the turn took, the service's own waits included.
        """
        calls = [call for call in end.tool_calls if call.status == "ok"]
        if not self._parallel_calls:
            calls = calls[:1]
        status: Outcome = "incomplete" if end.finish_reason == "length" else "completed"
        told = _told(end, timing)

        events = self._say(self._tags.flush(), at_ms)
        events += self._close_reasoning(end.thinking, at_ms)
        events += self._close_message(end.text, status, has_calls=bool(calls), at_ms=at_ms)
        if end.finish_reason == "error":
            failed = TurnFailed(
                at_ms=at_ms,
                reason="finish_reason_error",
                message="the engine ended the turn with an error",
                calls=tuple(self._call_items(calls, "incomplete")),
                **told,
            )
            return [*events, failed]
        for item in self._call_items(calls, "completed"):
            events += self._offer(item, at_ms)
        return [*events, TurnCommitted(at_ms=at_ms, status=status, **told)]

    def _think(self, text: str, at_ms: int) -> Events:
        if not text:
            return []
        if self._reasoning_closed:
            # A closed item does not change (D-21); the log keeps what the stream leaves out.
            return [ReasoningDropped(at_ms=at_ms, text=text)]
        if self._reasoning:
            return [_extend(self._reasoning, text, at_ms)]
        self._reasoning, opened = self._open(ReasoningItem(self._new_id(IdKind.REASONING), ""), at_ms)
        return [opened, _extend(self._reasoning, text, at_ms)]

    def _say(self, text: str, at_ms: int) -> Events:
        if not text:
            return []
        events = self._open_message(at_ms)
        assert self._message
        extended = _extend(self._message, text, at_ms)
        if self._logprobs:
            # Tokens whose text was held back come with the text that is let through after them.
            extended = replace(extended, logprobs=(tuple(self._logprobs),))
            self._logprobs_told += self._logprobs
            self._logprobs.clear()
        return [*events, extended]

    def _open_message(self, at_ms: int) -> Events:
        if self._message:
            return []
        item = MessageItem(self._new_id(IdKind.MESSAGE), "in_progress", "")
        self._message, opened = self._open(item, at_ms)
        return [opened]

    def _close_reasoning(self, thinking: str | None, at_ms: int) -> Events:
        events = self._think(self._think_end.flush(), at_ms)
        if thinking and not self._reasoning and not self._reasoning_closed:
            # The engine told its thinking only at the end; the client gets it all the same.
            events += self._think(thinking, at_ms)
        if self._reasoning is None:
            return events
        item = ReasoningItem(self._reasoning.item.id, thinking or self._reasoning.text)
        closed = ItemClosed(at_ms=at_ms, output_index=self._reasoning.output_index, item=item)
        self._reasoning, self._reasoning_closed = None, True
        return [*events, closed]

    def _close_message(self, final: str, status: ItemStatus, *, has_calls: bool, at_ms: int) -> Events:
        """The engine's final text is authoritative: say what is missing of it, then close (R-278 … R-286)."""
        skipped = has_calls and not final
        if skipped and self._message is None:
            return []
        events = self._open_message(at_ms)
        assert self._message
        streamed = self._message.text
        # Text behind a tag that did lead to a call is the call's own markup.
        behind_calls = self._tags.suppressing and has_calls and streamed
        if final not in streamed and not behind_calls:
            events.append(_extend(self._message, final[overlap(streamed, final) :], at_ms))
        logprobs = tuple(self._logprobs_told)
        item = MessageItem(self._message.item.id, "completed" if skipped else status, final, logprobs)
        closed = ItemClosed(
            at_ms=at_ms, output_index=self._message.output_index, item=item, listed=not skipped
        )
        return [*events, closed]

    def _offer(self, done: CallItem, at_ms: int) -> Events:
        """A call, whole: it is shown only now that the turn is committed (R-314, D-33)."""
        item, opened = self._open(_begun(done), at_ms)
        extended = _extend(item, done.input if isinstance(done, CustomCallItem) else done.arguments, at_ms)
        return [opened, extended, ItemClosed(at_ms=at_ms, output_index=item.output_index, item=done)]

    def _call_items(self, calls: Sequence[EngineCall], status: ItemStatus) -> Iterator[CallItem]:
        """The engine's calls under the names the client knows, each with an id of its own."""
        seen: set[str] = set()
        for call in calls:
            # Outputs are paired with calls by their ids, so two calls must not share one.
            call_id = call.id if call.id and call.id not in seen else self._new_id(IdKind.CALL)
            seen.add(call_id)
            tool = self._toolbox.called(call.name)
            if tool.kind == "custom":
                item_id, text = self._new_id(IdKind.CUSTOM_CALL), custom_input(call.arguments)
                yield CustomCallItem(item_id, call_id, tool.name, text, status, tool.namespace)
            else:
                item_id = self._new_id(IdKind.FUNCTION_CALL)
                yield FunctionCallItem(item_id, call_id, tool.name, call.arguments, status, tool.namespace)

    def _open(self, item: Item, at_ms: int) -> tuple[OpenItem, ItemOpened]:
        open_item = OpenItem(self._items_opened, item)
        self._items_opened += 1
        return open_item, ItemOpened(at_ms=at_ms, output_index=open_item.output_index, item=item)


def failure(
    reason: FailureReason, message: str, at_ms: int, spent: Spent | None = None, timing: Timing | None = None
) -> TurnFailed:
    """The event of a turn that its engine did not bring to an end; what was spent stays visible (R-323).

    Args:
        spent: what the engine said of it, if it said anything.
        timing: as for `TurnAssembler.finish`; left out, the engine's own.
    """
    told = _told(spent, timing or spent.timing) if spent else {}
    return TurnFailed(at_ms=at_ms, reason=reason, message=message, **told)


def _told(spent: Spent, timing: Timing) -> dict[str, Any]:
    """What the last event of a turn says of its cost."""
    return {
        "usage": Usage(
            input_tokens=spent.prompt_tokens,
            output_tokens=spent.output_tokens,
            cached_tokens=spent.cached_tokens,
            reasoning_tokens=spent.reasoning_tokens,
        ),
        "timing": timing,
        "output_ids": None if spent.output_ids is None else pack(spent.output_ids),
        "alone": spent.alone,
    }


def _begun(done: CallItem) -> CallItem:
    """The call as it is when its item opens (D-33)."""
    if isinstance(done, CustomCallItem):
        return replace(done, input="", status="in_progress")
    return replace(done, arguments="", status="in_progress")


def _extend(open_item: OpenItem, text: str, at_ms: int) -> ItemExtended:
    open_item.pieces.append(text)
    return ItemExtended(at_ms=at_ms, item_id=open_item.item.id, deltas=(text,))


def epilogue(response: Response, failed: TurnFailed) -> Events:
    """How a turn ends that goes no further: what is open is closed with what was streamed, then it failed.

    A message is closed before reasoning (R-319).
    """
    closings: list[ItemClosed] = []
    for open_item in sorted(response.open_items.values(), key=lambda each: not _is_message(each.item)):
        match open_item.item:
            case MessageItem(id=item_id):
                item: Item = MessageItem(item_id, "incomplete", open_item.text)
            case ReasoningItem(id=item_id):
                item = ReasoningItem(item_id, open_item.text)
            case FunctionCallItem() as call:
                item = replace(call, arguments=open_item.text, status="incomplete")
            case CustomCallItem() as call:
                item = replace(call, input=open_item.text, status="incomplete")
            case _:
                assert_never(open_item.item)
        closings.append(ItemClosed(at_ms=failed.at_ms, output_index=open_item.output_index, item=item))
    return [*closings, failed]


def _is_message(item: Item) -> bool:
    return isinstance(item, MessageItem)

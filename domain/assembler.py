"""Assemble an engine's stream, chunk by chunk, into the events of a response's output. No I/O, no clock.

The rules by which a model's raw output turns into items (R-267 … R-289): reasoning closes before text,
structural tags stay hidden, the engine's final text is authoritative, and calls are emitted only once the
turn commits.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

from msgspec.structs import replace

from turnlog.domain.events import (
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
from turnlog.domain.output import Entry, Output
from turnlog.domain.ports import End, EngineCall, EngineChunk, ReasoningChunk, TextChunk, TurnStats
from turnlog.domain.tags import Eraser, TagBuffer, overlap
from turnlog.domain.tokens import pack
from turnlog.domain.tools import Toolbox, custom_input
from turnlog.domain.usage import Timing, Usage

Events = Iterator[ResponseEvent]


class Assembler:
    """Implements `Response.receive` and `Response.finish`: chunks in, events out, one at a time.

    It keeps only buffered text and reads everything else from `output`, so apply each event before
    requesting the next.

    Args:
        output: the fold of the response's item events.
        new_id: makes the id of an item when it is opened.
        toolbox: maps calls to their tools.
        parallel_calls: whether the turn may end in more than one call.
    """

    def __init__(
        self, output: Output, new_id: Callable[[IdKind], str], toolbox: Toolbox, *, parallel_calls: bool
    ) -> None:
        self._output = output
        self._new_id = new_id
        self._toolbox = toolbox
        self._parallel_calls = parallel_calls
        self._logprobs: list[Logprob] = []
        self._tags = TagBuffer()
        self._think_end = Eraser("</think>")

    def receive(self, chunk: EngineChunk, at_ms: int) -> Events:
        """The events for a chunk of the engine's stream; possibly none."""
        match chunk:
            case ReasoningChunk(text=text):
                return self._think(self._think_end.push(text), at_ms)
            case TextChunk(text=text, logprobs=logprobs):
                return self._answer(text, logprobs, at_ms)
            case _:
                assert_never(chunk)

    def finish(self, end: End, timing: Timing, at_ms: int) -> Events:
        """The events for the engine's end: open items close, calls are emitted, and the turn ends.

        Args:
            timing: how long each phase of the turn took, including the service's own waits.
        """
        calls = [call for call in end.tool_calls if call.status == "ok"]
        if not self._parallel_calls:
            calls = calls[:1]
        status: Outcome = "incomplete" if end.finish_reason == "length" else "completed"
        cost = turn_cost(end, timing)

        yield from self._emit_text(self._tags.flush(), at_ms)
        yield from self._close_reasoning(end.thinking, at_ms)
        yield from self._close_message(end.text, status, has_calls=bool(calls), at_ms=at_ms)
        if end.finish_reason == "error":
            yield TurnFailed(
                at_ms=at_ms,
                reason="finish_reason_error",
                message="the engine ended the turn with an error",
                calls=tuple(self._call_items(calls, "incomplete")),
                **cost,
            )
            return
        for item in self._call_items(calls, "completed"):
            yield from self._emit_call(item, at_ms)
        yield TurnCommitted(at_ms=at_ms, status=status, **cost)

    def stop(self, cost: dict[str, Any], at_ms: int) -> Events:
        """The events for a turn that is stopped to be steered: open items close with what was said."""
        yield from self._emit_text(self._tags.flush(), at_ms)
        yield from self._think(self._think_end.flush(), at_ms)
        for entry in sorted(self._output.open_entries, key=lambda entry: not entry.is_message):
            yield ItemClosed(at_ms=at_ms, output_index=entry.output_index, item=entry.cut_short())
        yield TurnCommitted(at_ms=at_ms, status="incomplete", reason="steered", **cost)

    def _answer(self, text: str, logprobs: Sequence[Logprob], at_ms: int) -> Events:
        self._logprobs += logprobs
        # The first text ends the reasoning, even if the text itself is still buffered.
        yield from self._close_reasoning(None, at_ms)
        yield from self._emit_text(self._tags.push(text), at_ms)

    def _think(self, text: str, at_ms: int) -> Events:
        if not text:
            return
        entry = self._output.first(ReasoningItem)
        if entry is None:
            item = ReasoningItem(self._new_id(IdKind.REASONING), "")
            yield self._opened(item, at_ms)
            yield ItemExtended(at_ms=at_ms, item_id=item.id, deltas=(text,))
        elif entry.is_open:
            yield ItemExtended(at_ms=at_ms, item_id=entry.item.id, deltas=(text,))
        else:
            # A closed item does not change (D-21); the log keeps the text that the stream omits.
            yield ReasoningDropped(at_ms=at_ms, text=text)

    def _emit_text(self, text: str, at_ms: int) -> Events:
        if not text:
            return
        yield from self._open_message(at_ms)
        # The log probabilities of buffered tokens go out with the next text that is emitted.
        logprobs = (tuple(self._logprobs),) if self._logprobs else ()
        self._logprobs.clear()
        yield ItemExtended(at_ms=at_ms, item_id=self._message.item.id, deltas=(text,), logprobs=logprobs)

    @property
    def _message(self) -> Entry:
        entry = self._output.first(MessageItem)
        assert entry, "a message is opened before it is used"
        return entry

    def _open_message(self, at_ms: int) -> Events:
        if self._output.first(MessageItem) is None:
            yield self._opened(MessageItem(self._new_id(IdKind.MESSAGE), "in_progress", ""), at_ms)

    def _close_reasoning(self, thinking: str | None, at_ms: int) -> Events:
        yield from self._think(self._think_end.flush(), at_ms)
        if thinking and self._output.first(ReasoningItem) is None:
            # The engine reported its thinking only at the end; the client still gets it.
            yield from self._think(thinking, at_ms)
        entry = self._output.first(ReasoningItem)
        if entry and entry.is_open:
            item = ReasoningItem(entry.item.id, thinking or entry.text)
            yield ItemClosed(at_ms=at_ms, output_index=entry.output_index, item=item)

    def _close_message(self, final: str, status: ItemStatus, *, has_calls: bool, at_ms: int) -> Events:
        """The engine's final text is authoritative: emit its missing part, then close (R-278 … R-286)."""
        skipped = has_calls and not final
        if skipped and self._output.first(MessageItem) is None:
            return
        yield from self._open_message(at_ms)
        entry = self._message
        streamed = entry.text
        # Text after a tag that did lead to a call is the call's own markup.
        behind_calls = self._tags.suppressing and has_calls and streamed
        if final not in streamed and not behind_calls:
            missing = final[overlap(streamed, final) :]
            yield ItemExtended(at_ms=at_ms, item_id=entry.item.id, deltas=(missing,))
        closed_as = "completed" if skipped else status
        item = MessageItem(entry.item.id, closed_as, final, tuple(entry.logprobs))
        yield ItemClosed(at_ms=at_ms, output_index=entry.output_index, item=item, listed=not skipped)

    def _emit_call(self, done: CallItem, at_ms: int) -> Events:
        """Emit a whole call; the client sees it only when the turn commits (R-314, D-33)."""
        begun: CallItem
        match done:
            case CustomCallItem(input=text):
                begun = replace(done, input="", status="in_progress")
            case FunctionCallItem(arguments=text):
                begun = replace(done, arguments="", status="in_progress")
        opened = self._opened(begun, at_ms)
        yield opened
        yield ItemExtended(at_ms=at_ms, item_id=done.id, deltas=(text,))
        yield ItemClosed(at_ms=at_ms, output_index=opened.output_index, item=done)

    def _call_items(self, calls: Sequence[EngineCall], status: ItemStatus) -> Iterator[CallItem]:
        """The engine's calls under the names the client knows, each with a unique id."""
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

    def _opened(self, item: Item, at_ms: int) -> ItemOpened:
        return ItemOpened(at_ms=at_ms, output_index=len(self._output.entries), item=item)


def turn_cost(stats: TurnStats, timing: Timing) -> dict[str, Any]:
    """The cost fields of a turn's last event."""
    return {
        "usage": Usage(
            input_tokens=stats.prompt_tokens,
            output_tokens=stats.output_tokens,
            cached_tokens=stats.cached_tokens,
            reasoning_tokens=stats.reasoning_tokens,
        ),
        "timing": timing,
        "output_ids": None if stats.output_ids is None else pack(stats.output_ids),
        "alone": stats.unbatched,
    }

"""From events to the chunks of a chat's stream: a pure function, like the frames of `openai.frames`."""

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from turnlog.adapters.openai.chat.completion import (
    call_object,
    finish_reason,
    head,
    logprobs_object,
    usage_object,
)
from turnlog.adapters.openai.errors import error_envelope
from turnlog.adapters.openai.frames import DONE, one_line
from turnlog.adapters.openai.response import error_object
from turnlog.domain.events import (
    GenerationStarted,
    ItemExtended,
    ItemOpened,
    ResponseCreated,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
)
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, Logprob, MessageItem, ReasoningItem
from turnlog.domain.response import Response

Json = dict[str, Any]

HEARTBEAT = b": keep-alive\n\n"
"""A comment: a chunk without news would be taken for one with some."""


class ChunkFramer:
    """Render a response's events as the SSE frames of Chat Completions. No I/O.

    The first frame says that the turn was accepted. The last one has `data: [DONE]`, and before it the usage
    if the turn committed: `without_usage` takes that away.
    """

    def __init__(self) -> None:
        self.closed = False
        self._head = b""
        self._calls: list[str] = []

    def receive(self, event: ResponseEvent, response: Response) -> list[bytes]:
        """Frames that follow from `event`, in order; possibly none.

        After an event that ends the response, `closed` is true and nothing more is returned.

        Args:
            response: what the event was applied to; what has happened to it since makes no difference.
        """
        if self.closed:
            return []
        if isinstance(event, ItemExtended):
            item = response.output.entries[event.item_id].item
            logprobs = event.logprobs or [()] * len(event.deltas)
            return [
                self._delta(item, delta, each) for delta, each in zip(event.deltas, logprobs, strict=True)
            ]
        return self._render(event, response)

    def _render(self, event: ResponseEvent, response: Response) -> list[bytes]:
        match event:
            case ResponseCreated():
                self._begin(event, None)
                return [self._chunk({"role": "assistant", "content": ""})]
            case GenerationStarted(model_fingerprint=fingerprint):
                self._begin(response.created, fingerprint)
            case ItemOpened(item=FunctionCallItem() | CustomCallItem() as call):
                self._calls.append(call.id)
                return [self._call_chunk(call.id, call_object(call))]
            case TurnCommitted():
                return self._committed(event, response)
            case TurnFailed():
                return self._failed(event)
        return []

    def _begin(self, created: ResponseCreated, fingerprint: str | None) -> None:
        """Encode once what all chunks begin with."""
        self._head = b"data: " + one_line(head("chat.completion.chunk", created, fingerprint))[:-1]

    def _delta(self, item: Item, delta: str, logprobs: Sequence[Logprob]) -> bytes:
        match item:
            case MessageItem():
                return self._chunk({"content": delta}, logprobs)
            case ReasoningItem():
                return self._chunk({"reasoning_content": delta})
            case FunctionCallItem():
                return self._call_chunk(item.id, {"function": {"arguments": delta}})
            case CustomCallItem():
                return self._call_chunk(item.id, {"custom": {"input": delta}})
            case _:
                assert_never(item)

    def _call_chunk(self, item_id: str, fields: Json) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._calls.index(item_id), **fields}]})

    def _chunk(self, delta: Json, logprobs: Sequence[Logprob] = (), finish: str | None = None) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": logprobs_object(logprobs) if logprobs else None,
            "finish_reason": finish,
        }
        return self._frame({"choices": [choice]})

    def _frame(self, fields: Json) -> bytes:
        return b"%b,%b\n\n" % (self._head, one_line(fields)[1:])

    def _committed(self, committed: TurnCommitted, response: Response) -> list[bytes]:
        self.closed = True
        usage = self._frame({"choices": [], "usage": usage_object(committed.usage)})
        return [self._chunk({}, finish=finish_reason(response)), usage + DONE]

    def _failed(self, failed: TurnFailed) -> list[bytes]:
        """An error that clients raise, also after the first byte."""
        self.closed = True
        error = error_object(failed)
        envelope = error_envelope("server_error", error["message"], code=error["code"])
        return [b"data: %b\n\n" % one_line(envelope), DONE]


def chunk_frames(events: Iterable[ResponseEvent], response: Response) -> list[bytes]:
    """The whole stream of a response, one element a frame.

    Args:
        response: what the events fold to.
    """
    framer = ChunkFramer()
    return [frame for event in events for frame in framer.receive(event, response)]


def without_usage(frame: bytes) -> bytes:
    """The frame for a client that has not asked for the usage, which only the last one has."""
    return DONE if frame.endswith(DONE) else frame

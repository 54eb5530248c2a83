"""From events to SSE frames: a pure function, so a stream is the same bytes live and from the log."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, assert_never

import msgspec

from turnlog.adapters.openai.response import (
    echoed_fields,
    error_object,
    is_cancelled,
    item_object,
    logprob_objects,
    opening_fields,
    result_fields,
    summary_part,
    text_part,
)
from turnlog.domain.events import (
    ContentExpired,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    MetadataChanged,
    PersistHardTimedOut,
    ReasoningDropped,
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
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, Logprob, MessageItem, ReasoningItem
from turnlog.domain.output import Entry
from turnlog.domain.ports import Frame, SharedFrame, parts
from turnlog.domain.response import Response

DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]

_HEAD = b"event: %b\ndata: %b"
_SHARED_BYTES = 16 * 1024
"""From what size on an echo is kept once for all frames; below, one piece is simpler."""

_encode = msgspec.json.Encoder().encode

# No ends of a line in SSE, but some clients split frames at them (T2-23). In JSON, they are in strings only.
_LINE_ENDS = [(end.encode(), b"\\u%04x" % ord(end)) for end in ("\x85", "\u2028", "\u2029")]


class Framer:
    """Render a response's events as the SSE frames of the Responses API. No I/O.

    `sequence_number` starts at 0 and rises by one per frame; `output_index` counts items (D-01, R-265).
    The last frame carries `data: [DONE]` behind its terminal event.
    """

    def __init__(self) -> None:
        self.closed = False
        self._next_number = 0
        self._escapes_line_ends = False
        self._echo = b""

    def receive(self, event: ResponseEvent, response: Response) -> list[Frame]:
        """Frames that follow from `event`, in order; possibly none.

        After an event that ends the response, `closed` is true and nothing more is returned.

        Args:
            response: what the event was applied to; what has happened to it since makes no difference.
        """
        if self.closed:
            return []
        self._escapes_line_ends = response.created.wire_version > 1
        if isinstance(event, ItemExtended):
            entry = response.output.entries[event.item_id]
            logprobs = event.logprobs or [()] * len(event.deltas)
            return [
                self._delta(entry, delta, each) for delta, each in zip(event.deltas, logprobs, strict=True)
            ]
        if isinstance(event, ResponseCreated):
            return self._accepted(event)
        return self._render(event, response)

    def _accepted(self, created: ResponseCreated) -> list[Frame]:
        """The opening frames; a background turn is in progress only when it has left the queue (D-26)."""
        status = "queued" if created.background else "in_progress"
        opening = opening_fields(created, status)
        return [
            self._response_frame(name, opening, created)
            for name in ("response.created", f"response.{status}")
        ]

    def _render(self, event: ResponseEvent, response: Response) -> list[Frame]:
        match event:
            case ItemOpened(item=item, output_index=index):
                return self._opened(item, index)
            case ItemClosed(item=item, output_index=index, listed=listed):
                return self._closed(item, index, listed=listed)
            case TurnCommitted(status=status):
                return [self._terminal(f"response.{status}", response)]
            case TurnFailed():
                return self._failed(event, response)
            case GenerationStarted() if response.created.background:
                opening = opening_fields(response.created)
                return [self._response_frame("response.in_progress", opening, response.created)]
            case (
                GenerationStarted()
                | ReasoningDropped()
                | TurnRequeued()
                | SteerAccepted()
                | SteersCommitted()
                | SteersFailed()
                | TurnPersisted()
                | PersistHardTimedOut()
                | ResponseDeleted()
                | MetadataChanged()
                | ContentExpired()
            ):
                return []
            case ResponseCreated() | ItemExtended():
                raise AssertionError(f"{event} is rendered by `receive`")
            case _:
                assert_never(event)

    def _opened(self, item: Item, index: int) -> list[Frame]:
        frames: list[Frame] = [
            self._frame("response.output_item.added", output_index=index, item=item_object(item))
        ]
        at = {"item_id": item.id, "output_index": index}
        match item:
            case MessageItem():
                frames.append(
                    self._frame("response.content_part.added", **at, content_index=0, part=text_part(""))
                )
            case ReasoningItem():
                frames.append(
                    self._frame(
                        "response.reasoning_summary_part.added",
                        **at,
                        summary_index=0,
                        part=summary_part(""),
                    )
                )
            case FunctionCallItem() | CustomCallItem():
                pass
            case _:
                assert_never(item)
        return frames

    def _delta(self, entry: Entry, delta: str, logprobs: Iterable[Logprob]) -> bytes:
        at = {"item_id": entry.item.id, "output_index": entry.output_index}
        match entry.item:
            case MessageItem():
                fields = {"content_index": 0, "delta": delta, "logprobs": logprob_objects(logprobs)}
                return self._frame("response.output_text.delta", **at, **fields)
            case ReasoningItem():
                return self._frame(
                    "response.reasoning_summary_text.delta", **at, summary_index=0, delta=delta
                )
            case FunctionCallItem():
                return self._frame("response.function_call_arguments.delta", **at, delta=delta)
            case CustomCallItem():
                return self._frame("response.custom_tool_call_input.delta", **at, delta=delta)
            case _:
                assert_never(entry.item)

    def _closed(self, item: Item, index: int, *, listed: bool) -> list[Frame]:
        at = {"item_id": item.id, "output_index": index}
        match item:
            case MessageItem(text=text, logprobs=logprobs):
                part = {**at, "content_index": 0}
                tokens = logprob_objects(logprobs)
                frames: list[Frame] = [
                    self._frame("response.output_text.done", **part, text=text, logprobs=tokens),
                    self._frame("response.content_part.done", **part, part=text_part(text, logprobs)),
                ]
            case ReasoningItem(text=text):
                part = {**at, "summary_index": 0}
                frames = [
                    self._frame("response.reasoning_summary_text.done", **part, text=text),
                    self._frame("response.reasoning_summary_part.done", **part, part=summary_part(text)),
                ]
            case FunctionCallItem(arguments=arguments):
                frames = [self._frame("response.function_call_arguments.done", **at, arguments=arguments)]
            case CustomCallItem(input=text):
                frames = [self._frame("response.custom_tool_call_input.done", **at, input=text)]
            case _:
                assert_never(item)
        done = item_object(item, listed=listed)
        return [*frames, self._frame("response.output_item.done", output_index=index, item=done)]

    def _failed(self, failed: TurnFailed, response: Response) -> list[Frame]:
        if is_cancelled(response.created, failed):
            # Of an event named after it, clients would think that the stream was cut off (D-02).
            return [self._terminal("response.incomplete", response)]
        error = {"type": "server_error", **error_object(failed), "param": None}
        flat = {"code": error["code"], "message": error["message"], "param": None}
        return [self._frame("error", error=error, **flat), self._terminal("response.failed", response)]

    def _terminal(self, name: str, response: Response) -> Frame:
        self.closed = True
        return self._response_frame(name, result_fields(response), response.created, DONE)

    def _response_frame(self, name: str, fields: Json, created: ResponseCreated, end: bytes = b"") -> Frame:
        """A frame with a response object in it; what that repeats of the request is encoded once (T2-20)."""
        if not self._echo:
            self._echo = b"," + self._encoded(echoed_fields(created))[1:]
        data = self._encoded({"type": name, "sequence_number": self._next_number, "response": fields})
        self._next_number += 1
        frame = SharedFrame(_HEAD % (name.encode(), data[:-2]), self._echo, b"}\n\n" + end)
        return frame if len(self._echo) >= _SHARED_BYTES else bytes(frame)

    def _frame(self, name: str, **fields: Any) -> bytes:
        data = self._encoded({"type": name, "sequence_number": self._next_number, **fields})
        self._next_number += 1
        # One line of JSON: nothing a model or a client wrote can begin a line of its own.
        return _HEAD % (name.encode(), data) + b"\n\n"

    def _encoded(self, fields: Json) -> bytes:
        return one_line(fields) if self._escapes_line_ends else _encode(fields)


def one_line(fields: Json) -> bytes:
    """JSON in which no client finds the end of a line (T2-23)."""
    data = _encode(fields)
    # ASCII, as most frames are, has none of them, and is known at a twentieth of the cost.
    if not data.isascii():
        for line_end, escaped in _LINE_ENDS:
            data = data.replace(line_end, escaped)
    return data


def framed(events: Iterable[ResponseEvent], response: Response) -> list[Frame]:
    """The whole stream of a response, one element a frame; the one at `n` has sequence number n.

    Args:
        response: what the events fold to.
    """
    framer = Framer()
    return [frame for event in events for frame in framer.receive(event, response)]


def frames(events: Iterable[ResponseEvent], response: Response) -> list[bytes]:
    """The same as `framed`, each frame in one piece."""
    return [bytes(frame) for frame in framed(events, response)]


def heartbeat(opening: Sequence[Frame], number: int) -> Frame:
    """The stream's last frame about its status again, under the number of the last frame sent.

    It is the one sign of life that every client takes for one; it is never stored (D5).

    Args:
        opening: the first frames, as far as they were sent; from the third on, only the third matters.
    """
    is_third = len(opening) > 2 and _head(opening[2]).startswith(b"event: response.in_progress\n")
    own = 2 if is_third else 1
    frame = opening[own]
    renumbered = _head(frame).replace(b'"sequence_number":%d' % own, b'"sequence_number":%d' % number, 1)
    return frame._replace(head=renumbered) if isinstance(frame, SharedFrame) else renumbered


def _head(frame: Frame) -> bytes:
    """The frame, or as much of it as has its event and number."""
    return frame.head if isinstance(frame, SharedFrame) else frame


_OBFUSCATED_CHARACTERS = 16
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def obfuscate(frame: Frame, choose: Callable[[str], str]) -> Frame:
    """A delta's frame padded to a multiple of 16 characters, so that its size tells less of its text (D-35).

    Args:
        choose: picks a character at random.
    """
    if isinstance(frame, SharedFrame):
        return frame  # not of a delta
    head, separator, data = frame.partition(b"\ndata: ")
    if not head.endswith(b".delta"):
        return frame
    length = len(msgspec.json.decode(data)["delta"])
    padding = "".join(choose(_ALPHABET) for _ in range(-length % _OBFUSCATED_CHARACTERS))
    return head + separator + data.removesuffix(b"}\n\n") + b',"obfuscation":"%b"}\n\n' % padding.encode()


PIECE_BYTES = 64 * 1024
"""How much is handed to a connection at once: as much as it holds back for a client that does not read."""


def pieces(frames: Iterable[Frame]) -> Iterator[bytes]:
    """The frames' bytes, small frames together and large ones cut, in pieces of at most `PIECE_BYTES`."""
    gathered: list[bytes] = []
    room = PIECE_BYTES
    for part in chain.from_iterable(map(parts, frames)):
        if len(part) > room and gathered:
            yield b"".join(gathered)
            gathered, room = [], PIECE_BYTES
        if len(part) > room:
            yield from (part[at : at + PIECE_BYTES] for at in range(0, len(part), PIECE_BYTES))
        else:
            gathered.append(part)
            room -= len(part)
    if gathered:
        yield b"".join(gathered)

"""The messages of WebSocket mode: a client's as commands, the frames of a stream as JSON messages."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnlog.adapters.openai.frames import DONE
from turnlog.adapters.openai.input_items import pieces, read_items
from turnlog.adapters.openai.limits import RequestLimits, check_json
from turnlog.adapters.openai.request import decoded_json, read_request
from turnlog.adapters.openai.shown import named
from turnlog.domain.errors import InvalidRequestError, ResponsesError
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item
from turnlog.domain.messages import Message
from turnlog.domain.request import TurnRequest

Json = dict[str, Any]

STREAM_ID_CHARACTERS = 128


class Create(Struct, frozen=True):
    """A `response.create`: the turn to run, or why it is refused, in the stream that the client named."""

    stream_id: str | None
    asked: TurnRequest | ResponsesError
    size_bytes: int

    def request(self) -> TurnRequest:
        """The turn to run.

        Raises:
            ResponsesError: it is refused.
        """
        if isinstance(self.asked, ResponsesError):
            raise self.asked
        return self.asked


class Steer(Struct, frozen=True):
    """A `response.steer`: `input` as the client sent it, and the fields that it has no place for."""

    previous_response_id: str
    input: Any
    unknown: tuple[str, ...]
    size_bytes: int


def decode_message(body: bytes, limits: RequestLimits) -> Create | Steer:
    """What a client's message asks for.

    Raises:
        InvalidRequestError: the message is no JSON object, or none that is known, or names no stream.
    """
    check_json(body, limits)
    given = decoded_json(body)
    if not isinstance(given, dict):
        raise InvalidRequestError("The message must be a JSON object.", param="type")
    match given.pop("type", None):
        case "response.create":
            return _create(given, limits, len(body))
        case "response.steer":
            return _steer(given, len(body))
        case kind:
            what = named(kind) if isinstance(kind, str) else "missing"
            raise InvalidRequestError(
                f"type is {what}; expected response.create or response.steer", param="type"
            )


def _steer(given: Json, size_bytes: int) -> Steer:
    response_id = given.pop("previous_response_id", None)
    if not isinstance(response_id, str):
        raise InvalidRequestError("previous_response_id must be a string", param="previous_response_id")
    return Steer(response_id, given.pop("input", None), tuple(sorted(given)), size_bytes)


def _create(given: Json, limits: RequestLimits, size_bytes: int) -> Create:
    stream_id = given.pop("stream_id", None)
    if not (stream_id is None or (isinstance(stream_id, str) and 0 < len(stream_id) <= STREAM_ID_CHARACTERS)):
        raise InvalidRequestError(
            f"stream_id must be a string of 1 to {STREAM_ID_CHARACTERS} characters", param="stream_id"
        )
    generate = given.pop("generate", None)
    try:
        if not isinstance(generate, bool | None):
            raise InvalidRequestError("generate must be a boolean", param="generate")
        if generate is False:
            given = {"input": [], **given}
        # Headers belong to the connection: an idempotency key among them would make all its turns one.
        request = read_request(given, {}, limits, may_be_silent=generate is False)
        if request.background:
            raise InvalidRequestError(
                "Background responses are created by POST /v1/responses.", param="background"
            )
    except ResponsesError as refusal:
        return Create(stream_id, refusal, size_bytes)
    return Create(stream_id, replace(request, stream=True, generate=generate is not False), size_bytes)


def frame_message(frame: bytes, stream_id: str | None) -> str:
    """A frame of a stream as a message: its JSON, with the id of the stream."""
    data = frame.removesuffix(DONE).partition(b"\ndata: ")[2].rstrip(b"\n")
    if stream_id is not None:
        data = b'%b,"stream_id":%b}' % (data[:-1], msgspec.json.encode(stream_id))
    return data.decode()


def error_message(status: int, envelope: Json, headers: dict[str, str], stream_id: str | None = None) -> str:
    """What a request of a message was refused with, by the status that it has over HTTP."""
    message = {"type": "error", "status": status, **envelope}
    if headers:
        message["error"] = envelope["error"] | {"headers": headers}
    if stream_id is not None:
        message["stream_id"] = stream_id
    return msgspec.json.encode(message).decode()


# ── steering ──────────────────────────────────────────────────────────────────────────────────────


def decode_steer_input(given: Any, unknown: Sequence[str] = ()) -> tuple[Message, ...]:
    """The user's messages that a `response.steer` has as its input.

    Args:
        unknown: the fields of the message that it may not have.

    Raises:
        InvalidRequestError: it is empty, or there is anything but messages with the role `user`.
    """
    if unknown:
        raise InvalidRequestError(f"response.steer has no field {named(unknown[0])}", param=named(unknown[0]))
    if not (isinstance(given, str) or (isinstance(given, list) and given)):
        raise InvalidRequestError("input must be a string or a list of messages", param="input")
    for index, item in enumerate(given if isinstance(given, list) else ()):
        if not isinstance(item, dict) or item.keys() - {"type", "role", "content"}:
            raise InvalidRequestError(f"input[{index}] may have type, role and content", param="input")
        if item.get("type", "message") != "message" or item.get("role") != "user":
            raise InvalidRequestError(
                f"input[{index}] must be a message with the role user", param=f"input[{index}]"
            )
    messages = tuple(piece for piece in pieces(read_items(given)) if isinstance(piece, Message))
    if not any(message.content.strip() or message.images for message in messages):
        raise InvalidRequestError("The input is empty.", param="input")
    return messages


def steer_message(
    outcome: Literal["accepted", "pending", "failed"],
    number: int,
    steer: Json,
    stream_id: str | None,
    **fields: Any,
) -> str:
    """What became of steering input.

    Args:
        number: the sequence number of the response's last frame; steering takes none of its own.
        steer: the submission.
    """
    message = {"type": f"response.steer.{outcome}", "sequence_number": number, "steer": steer, **fields}
    if stream_id is not None:
        message["stream_id"] = stream_id
    return msgspec.json.encode(message).decode()


def required_input(items: Iterable[Item]) -> list[Json]:
    """Stubs of the outputs that a response waits for."""
    stubs: list[Json] = []
    for item in items:
        if isinstance(item, FunctionCallItem):
            stubs.append({"type": "function_call_output", "call_id": item.call_id, "name": item.name})
        elif isinstance(item, CustomCallItem):
            stubs.append({"type": "custom_tool_call_output", "call_id": item.call_id})
    return stubs

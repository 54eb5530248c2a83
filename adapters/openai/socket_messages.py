"""The messages of WebSocket mode: a client's as commands, the frames of a stream as JSON messages."""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnlog.adapters.openai.frames import DONE
from turnlog.adapters.openai.limits import RequestLimits, check_json
from turnlog.adapters.openai.request import decoded_json, read_request
from turnlog.adapters.openai.shown import named
from turnlog.domain.errors import InvalidRequestError, ResponsesError
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


def decode_message(body: bytes, limits: RequestLimits) -> Create:
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
        case kind:
            what = named(kind) if isinstance(kind, str) else "missing"
            raise InvalidRequestError(f"type is {what}; expected response.create", param="type")


def _create(given: Json, limits: RequestLimits, size_bytes: int) -> Create:
    stream_id = given.pop("stream_id", None)
    if not (stream_id is None or (isinstance(stream_id, str) and 0 < len(stream_id) <= STREAM_ID_CHARACTERS)):
        raise InvalidRequestError(
            f"stream_id must be a string of 1 to {STREAM_ID_CHARACTERS} characters", param="stream_id"
        )
    try:
        # Headers belong to the connection: an idempotency key among them would make all its turns one.
        request = read_request(given, {}, limits)
        if request.background:
            raise InvalidRequestError(
                "Background responses are created by POST /v1/responses.", param="background"
            )
    except ResponsesError as refusal:
        return Create(stream_id, refusal, size_bytes)
    return Create(stream_id, replace(request, stream=True), size_bytes)


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

"""The routes of turnlog."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import State
from litestar.types import ControllerRouterHandler

from adapters.litestar.stream import FrameStream, finishes_first
from adapters.openai.events import event_list
from adapters.openai.frames import frames
from adapters.openai.request import decode_request
from adapters.openai.response import response_object
from app.http.errors import UnsupportedMediaTypeError, failed_turn
from app.live import FrameLog, LiveTurn
from app.service import Service
from domain.errors import InvalidRequestError
from domain.events import TurnFailed

Json = dict[str, Any]
HttpRequest = Request[None, None, State]


@post("/v1/responses", status_code=200)
async def create_response(request: HttpRequest, service: Service) -> Response[Any]:
    """Run a turn; answer with its response object or, with `stream`, with its frames."""
    if request.content_type[0] != MediaType.JSON:
        raise UnsupportedMediaTypeError(request.content_type[0])
    command = decode_request(await request.body(), request.headers)
    turn = await service.turns.begin(command)
    leave = partial(turn.abort, "client_abort")
    if command.stream:
        return FrameStream(turn.frames.read(), on_disconnect=leave)
    if not await finishes_first(turn.ended.wait(), request.receive):
        leave()
        await turn.ended.wait()
    return _answer(turn)


def _answer(turn: LiveTurn) -> Response[Json]:
    ended = turn.response.ended
    if isinstance(ended, TurnFailed):
        return failed_turn(ended, turn.response.id)
    return Response(response_object(turn.response))


@get("/v1/responses/{response_id:str}")
async def read_response(response_id: str, request: HttpRequest, service: Service) -> Response[Any]:
    """The response object or, with `stream=true`, its stream from the beginning or after a frame."""
    if request.query_params.get("stream", "").lower() not in ("true", "1"):
        return Response(response_object(await service.readings.response(response_id)))
    start = _starting_after(request.query_params) + 1
    if turn := service.readings.live(response_id):
        return FrameStream(turn.frames.read(start))
    events = await service.readings.events(response_id)
    told = FrameLog()
    told.extend(await asyncio.to_thread(frames, [recorded.event for recorded in events]), closed=True)
    return FrameStream(told.read(start))


def _starting_after(query: Mapping[str, str]) -> int:
    """The number of the last frame the client has; -1 if it has none."""
    text = query.get("starting_after", "-1")
    try:
        return max(int(text), -1)
    except ValueError:
        raise InvalidRequestError(
            f"starting_after is {text!r}; it must be the sequence_number of a frame", param="starting_after"
        ) from None


@get("/v1/responses/{response_id:str}/events")
async def read_events(response_id: str, service: Service) -> Json:
    """The stored events of a response, in order."""
    return event_list(await service.readings.events(response_id))


@get("/v1/models")
async def list_models(service: Service) -> Json:
    """The served models (R-006, D-16)."""
    entries = [
        {"id": model.name, "object": "model", "created": model.registered_s, "owned_by": "turnlog"}
        for model in service.models.all()
    ]
    return {"object": "list", "data": entries}


@get(["/health", "/v1/health"])
async def health() -> Json:
    """Whether the server is alive (R-007)."""
    return {"status": "ok"}


@get("/")
async def root() -> Json:
    """What answers here (R-007, D-16)."""
    return {"service": "turnlog"}


ROUTES: list[ControllerRouterHandler] = [
    create_response,
    read_response,
    read_events,
    list_models,
    health,
    root,
]

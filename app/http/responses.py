"""The routes of responses: run a turn, read it, stream it again, list its events."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import MethodNotAllowedException

from turnlog.adapters.litestar.stream import FrameStream, finishes_first
from turnlog.adapters.openai.errors import error_envelope
from turnlog.adapters.openai.events import event_list
from turnlog.adapters.openai.frames import frames, heartbeat, obfuscate
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.request import decode_request
from turnlog.adapters.openai.response import response_object
from turnlog.app.http.access import until_it_ends
from turnlog.app.http.errors import UnsupportedMediaTypeError, failed_turn
from turnlog.app.http.service import Service
from turnlog.app.operations.logs import turn_context
from turnlog.app.settings import drain_limit_s
from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import TurnFailed
from turnlog.domain.owners import Caller

Json = dict[str, Any]
HttpRequest = Request[None, None, State]


@post("/v1/responses", status_code=200)
async def create_response(request: HttpRequest, service: Service, caller: Caller) -> Response[Any]:
    """Run a turn; answer with its response object or, with `stream`, with its frames."""
    if request.content_type[0] != MediaType.JSON:
        raise UnsupportedMediaTypeError(request.content_type[0])
    limits: RequestLimits = request.app.state.limits
    command = decode_request(await request.body(), request.headers, limits)
    if command.stream:
        until_it_ends(request).enter_context(service.quotas.streaming(caller.owner))
    with service.quotas.beginning(caller.owner):
        turn = await service.turns.begin(command, caller.owner)
    return await answer(turn, request, service, stream=command.stream, obfuscated=command.obfuscate)


async def answer(
    turn: LiveTurn, request: HttpRequest, service: Service, *, stream: bool, obfuscated: bool = False
) -> Response[Any]:
    """A turn that was just begun, as its stream or, when it has ended, as its object."""
    turn_context(turn.response.id, turn.response.created.owner)
    if stream:
        leave = partial(turn.abort, "client_abort")
        told = tell(turn.frames, heartbeat_s=service.heartbeat_s, obfuscated=obfuscated)
        headers = session_headers(turn, stream=True)
        return FrameStream(told, drain_limit_s=drain_limit_s(), on_disconnect=leave, headers=headers)
    await until_over(turn, request)
    return _object(turn)


async def until_over(turn: LiveTurn, request: HttpRequest) -> None:
    """Wait for the end of a turn, which comes at once if its client leaves."""
    if not await finishes_first(turn.ended.wait(), request.receive):
        turn.abort("client_abort")
        await turn.ended.wait()


def _object(turn: LiveTurn) -> Response[Json]:
    ended = turn.response.ended
    headers = session_headers(turn, stream=False)
    if isinstance(ended, TurnFailed):
        return failed_turn(ended, turn.response.id, headers)
    return Response(response_object(turn.response, turn.expires_at), headers=headers)


def session_headers(turn: LiveTurn, *, stream: bool) -> dict[str, str]:
    """What became of the warm caches, as the headers say it (R-242 … R-248).

    A stream's headers leave before the engine knows, so it never says `prefix_hit`, nor a count (R-245).
    """
    ended = turn.response.ended
    cached_tokens = ended.usage.cached_tokens if ended and not stream else None
    is_fresh = turn.cache_class == "prefix_hit" and (stream or cached_tokens == 0)
    headers: dict[str, str] = {"X-Session-Cache": "fresh" if is_fresh else turn.cache_class}
    if cached_tokens:
        headers["X-Cached-Tokens"] = str(cached_tokens)
    return headers


async def tell(
    log: FrameLog, start: int = 0, *, heartbeat_s: float, obfuscated: bool
) -> AsyncGenerator[bytes, None]:
    """A stream's bytes from frame `start` on, with a sign of life after each `heartbeat_s` of silence."""
    number = start - 1
    async with aclosing(log.read(start, silence_s=heartbeat_s)) as chunks:
        async for told in chunks:
            if not told:
                yield heartbeat(log[1], number)
                continue
            number += len(told)
            yield b"".join(obfuscate(frame, secrets.choice) if obfuscated else frame for frame in told)


@get("/v1/responses")
async def upgrade_required(request: HttpRequest) -> Response[Any]:
    """There is no list of responses here; and no WebSocket mode yet, which clients ask for by an upgrade."""
    if "upgrade" not in request.headers:
        raise MethodNotAllowedException(headers={"Allow": "POST"})
    body = error_envelope(
        "invalid_request_error",
        "WebSocket mode is not supported; send POST /v1/responses.",
        code="upgrade_not_supported",
    )
    return Response(body, status_code=426)


@get("/v1/responses/{response_id:str}")
async def read_response(
    response_id: str, request: HttpRequest, service: Service, caller: Caller
) -> Response[Any]:
    """The response object or, with `stream=true`, its stream from the beginning or after a frame."""
    if not _flag(request, "stream"):
        return Response(response_object(*await service.retrieval.response(response_id, caller.owner)))
    start = _starting_after(request.query_params) + 1
    until_it_ends(request).enter_context(service.quotas.streaming(caller.owner))
    if turn := service.retrieval.live(response_id, caller.owner):
        log = turn.frames
    else:
        story = await service.retrieval.story(response_id, caller.owner)
        log = FrameLog()
        log.extend(await asyncio.to_thread(frames, story.events, story.response), closed=True)
    obfuscated = _flag(request, "include_obfuscation")
    told = tell(log, start, heartbeat_s=service.heartbeat_s, obfuscated=obfuscated)
    return FrameStream(told, drain_limit_s=drain_limit_s())


def _flag(request: HttpRequest, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("true", "1")


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
async def read_events(response_id: str, service: Service, caller: Caller) -> Json:
    """The stored events of a response, in order."""
    return event_list(await service.retrieval.events(response_id, caller.owner))

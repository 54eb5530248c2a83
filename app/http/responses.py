"""The routes of responses: run a turn, read it, stream it again, list its events."""

import secrets
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from litestar import Request, Response, delete, get, post
from litestar.datastructures import State

from turnlog.adapters.litestar.stream import FrameStream, finishes_first, while_connected
from turnlog.adapters.openai.errors import error_envelope
from turnlog.adapters.openai.events import event_list
from turnlog.adapters.openai.frames import heartbeat, obfuscate, pieces
from turnlog.adapters.openai.request import decode_request
from turnlog.adapters.openai.response import response_object
from turnlog.adapters.openai.tools import ignored_types
from turnlog.app.http.bodies import read_turn, single
from turnlog.app.http.errors import failed_turn
from turnlog.app.http.request_log import notes
from turnlog.app.http.security import until_it_ends
from turnlog.app.http.service import Service
from turnlog.app.operations.logs import turn_context
from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.app.turns.queued_turns import QueuedTurn
from turnlog.app.turns.retrieval import Story
from turnlog.app.turns.stored_streams import Render
from turnlog.domain.errors import InvalidRequestError, NotEndedError
from turnlog.domain.events import CacheClass, ResponseCreated, TurnCommitted, TurnFailed
from turnlog.domain.owners import Caller
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import Response as Turn

REPLAYED = ("Idempotent-Replayed", "true")
"""The header of an answer to a request that repeats an earlier one."""

Json = dict[str, Any]
HttpRequest = Request[None, None, State]


class AnswerForm(NamedTuple):
    """How the turns of a surface are shown: as an object, and their frames as the bytes of a stream.

    `render` makes the frames of a stored turn, None those of the Responses API. With `fails_cancelled` there
    is no object of a turn that was cancelled.
    """

    object: Callable[[Turn, int | None], Json]
    stream: Callable[[FrameLog, float], AsyncGenerator[bytes, None]]
    render: Render | None = None
    fails_cancelled: bool = False


@post("/v1/responses", status_code=200)
async def create_response(request: HttpRequest, service: Service, caller: Caller) -> Response[Any]:
    """Run a turn; answer with its response object or, with `stream`, with its frames."""
    command, size_bytes = await read_turn(decode_request, request, service, caller)
    if command.background:
        return await _in_background(command, request, service, caller, size_bytes=size_bytes)
    form = response_form(obfuscated=command.obfuscate)
    return await run_turn(command, request, service, caller, form, size_bytes=size_bytes)


def response_form(*, obfuscated: bool = False) -> AnswerForm:
    """The form of the Responses API."""
    return AnswerForm(response_object, partial(stream_bytes, obfuscated=obfuscated))


async def run_turn(
    command: TurnRequest,
    request: HttpRequest,
    service: Service,
    caller: Caller,
    form: AnswerForm,
    *,
    size_bytes: int,
) -> Response[Any]:
    """Run the turn, or find the one that its idempotency key stands for, and answer in that form."""
    if command.stream:
        until_it_ends(request).enter_context(service.quotas.streaming(caller.owner))
    async with service.idempotency_keys.repeated(command, caller.owner) as earlier:
        begun = earlier or _begin(command, caller.owner, service, size_bytes=size_bytes)
        assert not isinstance(begun, QueuedTurn), "the same body would ask for a background turn"
        turn = begun if isinstance(begun, LiveTurn | Story) else await while_connected(begun, request.receive)
    if isinstance(turn, Story):
        response = await _answer_again(turn, command, service, form)
    else:
        response = await answer(turn, request, service, form, stream=command.stream)
    if earlier:
        response.set_header(*REPLAYED)
    return response


async def _begin(command: TurnRequest, owner: str, service: Service, *, size_bytes: int) -> LiveTurn:
    with service.quotas.beginning(owner):
        return await service.turns.begin(command, owner, size_bytes=size_bytes)


async def _in_background(
    command: TurnRequest, request: HttpRequest, service: Service, caller: Caller, *, size_bytes: int
) -> Response[Any]:
    """A background turn that was accepted, now or before; a client that leaves does nothing to it (D-40)."""
    owner = caller.owner
    if command.stream:
        until_it_ends(request).enter_context(service.quotas.streaming(owner))
    async with service.idempotency_keys.repeated(command, owner) as earlier:
        if earlier:
            known = earlier.response_id if isinstance(earlier, QueuedTurn) else earlier.response.id
            response, expires_at = await service.retrieval.response(known, owner)
        else:
            with service.quotas.queueing(owner):
                accepting = service.background.begin(command, owner, size_bytes=size_bytes)
                response = await while_connected(accepting, request.receive)
                expires_at = response.created.expires_at
    turn_context(response.id, owner)
    headers = ignored_tools(response.created) | (dict([REPLAYED]) if earlier else {})
    if not command.stream:
        return Response(response_object(response, expires_at), headers=headers)
    log = await _frame_log(response.id, service, owner)
    return streamed(log, service, obfuscated=command.obfuscate, headers=headers)


def streamed(
    log: FrameLog,
    service: Service,
    start: int = 0,
    *,
    obfuscated: bool = False,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> FrameStream:
    """The answer that streams these frames from number `start` on."""
    data = stream_bytes(log, service.heartbeat_s, start, obfuscated=obfuscated)
    return FrameStream(data, headers=headers)


def ignored_tools(created: ResponseCreated) -> dict[str, str]:
    """The header that names the types of tools which the model was not offered, if there are any (D-07)."""
    types = ignored_types(created.tools)
    return {"x-turnlog-ignored-tools": ", ".join(types)} if types else {}


async def answer(
    turn: LiveTurn, request: HttpRequest, service: Service, form: AnswerForm, *, stream: bool
) -> Response[Any]:
    """The answer for a new or joined turn: its stream or, once it has ended, its object."""
    turn_context(turn.response.id, turn.response.created.owner)
    if stream:
        data = form.stream(turn.frames, service.heartbeat_s)
        headers = _cache_headers(turn.cache_class, None) | ignored_tools(turn.response.created)
        leave = partial(_leave, weakref.ref(turn))
        return FrameStream(data, on_disconnect=leave, headers=headers)
    await until_over(turn, request)
    return _object(turn, request, form)


def _leave(turn: "weakref.ref[LiveTurn]") -> None:
    """Leave a turn, which is kept in memory for no client that reads slowly once it has ended."""
    if running := turn():
        running.leave()


async def _answer_again(
    story: Story, command: TurnRequest, service: Service, form: AnswerForm
) -> Response[Any]:
    """The answer for a successful stored turn, the same as when it was live."""
    response = story.response
    turn_context(response.id, response.created.owner)
    assert response.started, "a successful turn has started"
    cache_class = response.started.cache_class
    if not command.stream:
        headers = _cache_headers(cache_class, response.ended)
        return Response(form.object(response, response.created.expires_at), headers=headers)
    data = form.stream(await service.streams.tell(story, form.render), service.heartbeat_s)
    return FrameStream(data, headers=_cache_headers(cache_class, None))


async def until_over(turn: LiveTurn, request: HttpRequest) -> None:
    """Wait for the end of a turn; a client that disconnects leaves the turn first."""
    if not await finishes_first(turn.ended.wait(), request.receive):
        turn.leave()
        await turn.ended.wait()


def _object(turn: LiveTurn, request: HttpRequest, form: AnswerForm) -> Response[Json]:
    ended = turn.response.ended
    headers = _cache_headers(turn.cache_class, ended) | ignored_tools(turn.response.created)
    if isinstance(ended, TurnFailed) and (ended.reason != "cancelled" or form.fails_cancelled):
        return failed_turn(ended, turn.response.id, headers, request)
    return Response(form.object(turn.response, turn.expires_at), headers=headers)


def _cache_headers(cache_class: CacheClass, ended: TurnCommitted | TurnFailed | None) -> dict[str, str]:
    """The headers that report the prefix cache's use (R-242 … R-248).

    A stream's headers are sent before the engine knows, so they never have `prefix_hit` or a count (R-245).

    Args:
        ended: the turn's end; None for a stream.
    """
    cached_tokens = ended.usage.cached_tokens if ended else None
    is_fresh = cache_class == "prefix_hit" and (ended is None or cached_tokens == 0)
    headers: dict[str, str] = {"X-Session-Cache": "fresh" if is_fresh else cache_class}
    if cached_tokens:
        headers["X-Cached-Tokens"] = str(cached_tokens)
    return headers


async def stream_bytes(
    log: FrameLog, heartbeat_s: float, start: int = 0, *, obfuscated: bool
) -> AsyncGenerator[bytes, None]:
    """A stream's bytes from frame `start` on, with a heartbeat after each `heartbeat_s` of silence.

    They come in pieces, so that nothing large waits in memory for each reader.
    """
    number = start - 1
    async with aclosing(log.follow(start, silence_s=heartbeat_s)) as chunks:
        async for chunk in chunks:
            number += len(chunk)
            sent = chunk or [heartbeat(log.first(3), number)]
            for piece in pieces(obfuscate(frame, secrets.choice) if obfuscated else frame for frame in sent):
                yield piece


@get("/v1/responses")
async def upgrade_required(request: HttpRequest) -> Response[Any]:
    """There is no list of responses here, only the handshake of WebSocket mode, which this was none of."""
    code = notes(request.scope).code = "upgrade_required"
    message = (
        "GET /v1/responses opens a WebSocket (RFC 6455): send Upgrade: websocket, Connection: Upgrade and "
        "Sec-WebSocket-Version: 13. To create a response over HTTP, send POST /v1/responses."
    )
    # RFC 9110, 15.5.22: the protocol to use instead.
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    return Response(
        error_envelope("invalid_request_error", message, code=code), status_code=426, headers=headers
    )


@get("/v1/responses/{response_id:str}")
async def read_response(
    response_id: str, request: HttpRequest, service: Service, caller: Caller
) -> Response[Any]:
    """The response object or, with `stream=true`, its stream from the beginning or after a frame."""
    query = single(request, "stream", "starting_after", "include_obfuscation")
    if not _flag(query, "stream"):
        async with service.retrieval.places.one(caller.owner):
            found = await service.retrieval.response(response_id, caller.owner)
        return Response(response_object(*found))
    start = _starting_after(query) + 1
    until_it_ends(request).enter_context(service.quotas.streaming(caller.owner))
    log = await _frame_log(response_id, service, caller.owner)
    return streamed(log, service, start, obfuscated=_flag(query, "include_obfuscation"))


async def _frame_log(response_id: str, service: Service, owner: str) -> FrameLog:
    """The frames of a response that is queued, running or over."""
    if turn := service.retrieval.live(response_id, owner):
        if turn.response.created.surface != "responses":
            raise NotEndedError(response_id)
        return turn.frames
    if queued := service.retrieval.queued(response_id, owner):
        return await service.background.follow(queued)
    return await service.streams.of(response_id, owner)


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _starting_after(query: Mapping[str, str]) -> int:
    """The number of the last frame the client has; -1 if it has none."""
    text = query.get("starting_after", "-1")
    try:
        return max(int(text), -1)
    except ValueError:
        raise InvalidRequestError(
            f"starting_after is {text!r}; it must be the sequence_number of a frame", param="starting_after"
        ) from None


@post("/v1/responses/{response_id:str}/cancel", status_code=200)
async def cancel_response(response_id: str, service: Service, caller: Caller) -> Json:
    """The response, which runs no more; one that has ended is as it was."""
    if turn := await service.cancellation.cancel(response_id, caller.owner):
        return response_object(turn.response, turn.expires_at)
    return response_object(*await service.retrieval.response(response_id, caller.owner))


@delete("/v1/responses/{response_id:str}", status_code=200)
async def delete_response(response_id: str, service: Service, caller: Caller) -> Json:
    """The response is gone for its owner, and so is what was said in it."""
    await service.deletion.delete(response_id, caller.owner)
    return {"id": response_id, "object": "response", "deleted": True}


@get("/v1/responses/{response_id:str}/events")
async def read_events(response_id: str, service: Service, caller: Caller) -> Json:
    """The stored events of a response, in order."""
    async with service.retrieval.places.one(caller.owner):
        return event_list(await service.retrieval.events(response_id, caller.owner))

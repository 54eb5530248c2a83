"""The route of replays: run a turn again, tell it again, or check it."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.datastructures import State

from turnlog.adapters.litestar.stream import FrameStream
from turnlog.adapters.openai.frames import Framer
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.replay import ReplayBody, verdict_object
from turnlog.adapters.openai.request import decode_request
from turnlog.adapters.openai.response import response_object
from turnlog.app.http.access import until_it_ends
from turnlog.app.http.bodies import read_body
from turnlog.app.http.responses import answer, until_over
from turnlog.app.http.service import Service
from turnlog.app.replay import Changes, Verdict
from turnlog.app.replay.replays import Original, paced
from turnlog.app.settings import drain_limit_s
from turnlog.domain.errors import ForbiddenError, InvalidRequestError
from turnlog.domain.owners import Caller
from turnlog.domain.rerun import SETTABLE

HttpRequest = Request[None, None, State]


@post("/v1/responses/{response_id:str}/replay", status_code=200)
async def replay_response(
    response_id: str, request: HttpRequest, service: Service, caller: Caller
) -> Response[Any]:
    """Replay a turn that is over; a re-run is answered like `POST /v1/responses`."""
    body = await read_body(request, ReplayBody) if await request.body() else ReplayBody()
    _refuse_what_does_not_go_together(body)
    original = await service.replays.original(response_id)
    if not caller.reads_content(failed=original.failed or original.replays_a_failure):
        raise ForbiddenError("An operator may replay turns that failed; this one did not.")
    owner = original.response.created.owner
    if body.kind == "retell":
        if body.stream:
            until_it_ends(request).enter_context(service.quotas.streaming(caller.owner))
        return _told_again(original, body)
    if body.kind == "check":
        with service.quotas.beginning(owner):
            check = await service.replays.check(original, yields=body.yields)
        await until_over(check.turn, request)
        return Response(_shown(check.verdict()))
    changes = Changes(model=body.model, new_seed=body.seed == "new", settings=_settings(body.set, request))
    with service.quotas.beginning(owner):
        turn = await service.replays.rerun(original, changes, yields=body.yields)
    if body.stream:
        until_it_ends(request).enter_context(service.quotas.streaming(caller.owner))
    return await answer(turn, request, service, stream=body.stream)


def _refuse_what_does_not_go_together(body: ReplayBody) -> None:
    if body.kind != "rerun":
        changed = {"model": body.model, "set": body.set, "seed": body.seed == "new"}
        for name, given in changed.items():
            if given:
                raise InvalidRequestError(f"A {body.kind} changes nothing; leave out '{name}'.", param=name)
    if body.kind == "check" and body.stream:
        raise InvalidRequestError("A check is answered when it is done; leave out 'stream'.", param="stream")


def _settings(wanted: Mapping[str, Any], request: HttpRequest) -> Mapping[str, Any]:
    """The settings to change, checked as those of a new request are."""
    for name in wanted:
        if name not in SETTABLE:
            raise InvalidRequestError(
                f"'{name}' cannot be set in a replay; there are {', '.join(SETTABLE)}.", param=f"set.{name}"
            )
    probe = msgspec.json.encode({"model": "-", "input": "-"} | dict(wanted))
    limits: RequestLimits = request.app.state.limits
    checked = decode_request(probe, request.headers, limits)
    return {name: getattr(checked, name) for name in wanted}


def _told_again(original: Original, body: ReplayBody) -> Response[Any]:
    if not body.stream:
        return Response(response_object(original.response))
    told = _frames(original, original_pace=body.pace == "original")
    return FrameStream(told, drain_limit_s=drain_limit_s())


async def _frames(original: Original, *, original_pace: bool) -> AsyncGenerator[bytes, None]:
    framer = Framer()
    async for event in paced(original.events, original_pace=original_pace):
        if frames := framer.receive(event, original.response):
            yield b"".join(frames)


def _shown(verdict: Verdict) -> dict[str, Any]:
    return verdict_object(**verdict._asdict(), identical=verdict.identical)

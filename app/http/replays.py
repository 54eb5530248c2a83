"""The route of replays: run a turn again, stream it again, or check it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from litestar import Request, Response, post
from litestar.datastructures import State

from turnlog.adapters.litestar.stream import FrameStream, while_connected
from turnlog.adapters.openai.frames import Framer, pieces
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.replay import ReplayBody, verdict_object
from turnlog.adapters.openai.request import read_request
from turnlog.adapters.openai.response import response_object
from turnlog.app.http.bodies import read_body
from turnlog.app.http.responses import answer, response_form, streamed, until_over
from turnlog.app.http.security import until_it_ends
from turnlog.app.http.service import Service
from turnlog.app.replay.replays import paced
from turnlog.app.turns.retrieval import Story
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.owners import Caller
from turnlog.domain.rerun import Changes, check_settable, setting

HttpRequest = Request[None, None, State]


@post("/v1/responses/{response_id:str}/replay", status_code=200)
async def replay_response(
    response_id: str, request: HttpRequest, service: Service, caller: Caller
) -> Response[Any]:
    """Replay a finished turn; a re-run is answered like `POST /v1/responses`."""
    body = await read_body(request, ReplayBody) if await request.body() else ReplayBody()
    _refuse_conflicts(body)
    story = await while_connected(service.retrieval.original(response_id, caller), request.receive)
    original = story.response
    if body.stream:
        until_it_ends(request).enter_context(service.quotas.streaming(caller.owner))
    if body.kind == "retell" and body.stream:
        if body.pace == "fast":
            return streamed(await service.streams.tell(story), service)
        return FrameStream(_frames(story))
    if body.kind == "retell":
        return Response(response_object(original, story.expires_at))
    if body.kind == "check":
        with service.quotas.beginning(original.created.owner):
            checking = service.replays.check(original, yields=body.yields)
            check = await while_connected(checking, request.receive)
        await until_over(check.turn, request)
        # It asks the model's text process, which may be busy.
        return Response(verdict_object(await asyncio.to_thread(check.verdict)))
    changes = Changes(model=body.model, new_seed=body.seed == "new", settings=_settings(body.set, request))
    with service.quotas.beginning(original.created.owner):
        begun = service.replays.rerun(original, changes, yields=body.yields)
        turn = await while_connected(begun, request.receive)
    return await answer(turn, request, service, response_form(), stream=body.stream)


def _refuse_conflicts(body: ReplayBody) -> None:
    if body.kind != "rerun":
        changed = {"model": body.model, "set": body.set, "seed": body.seed == "new"}
        for name, given in changed.items():
            if given:
                raise InvalidRequestError(f"'{name}' cannot be used with the kind '{body.kind}'.", param=name)
    if body.kind == "check" and body.stream:
        raise InvalidRequestError("'stream' cannot be used with the kind 'check'.", param="stream")


def _settings(wanted: Mapping[str, Any], request: HttpRequest) -> Mapping[str, Any]:
    """The settings to change, checked as those of a new request are."""
    check_settable(wanted)
    limits: RequestLimits = request.app.state.limits
    checked = read_request({"model": "-", "input": "-", **wanted}, {}, limits)
    return {name: setting(checked, name) for name in wanted}


async def _frames(story: Story) -> AsyncGenerator[bytes, None]:
    framer = Framer()
    async for event in paced(story.events):
        for piece in pieces(framer.receive(event, story.response)):
            yield piece

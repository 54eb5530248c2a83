"""The routes of auditors and operators: find responses, see them whole, compare two, take the log away.

What of it holds content, and who reads that, is decided in `app.audit.reading`.
"""

from functools import partial
from typing import Any

from litestar import Request, Response, get
from litestar.datastructures import State

from turnlog.adapters.litestar.stream import FrameStream
from turnlog.adapters.openai.audit import (
    comparison_object,
    conversation_object,
    found_object,
    timeline_object,
    turn_object,
    usage_row,
)
from turnlog.app.audit.exporting import Export
from turnlog.app.audit.filters import read_filter
from turnlog.app.audit.times import read_time
from turnlog.app.http.bodies import single
from turnlog.app.http.security import until_it_ends
from turnlog.app.http.service import Service
from turnlog.domain.audit.usage import read_keys
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ids import response_id
from turnlog.domain.owners import Caller

Json = dict[str, Any]
HttpRequest = Request[None, None, State]

_MOST_POSITION = 2**63 - 1
_EXPORT_HEADERS = {
    "content-type": "application/jsonl; charset=utf-8",
    "content-disposition": 'attachment; filename="turnlog.jsonl"',
}


@get("/v1/audit/responses")
async def find_responses(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """The responses that meet every condition of the query, the newest first unless it says otherwise."""
    wanted = read_filter(request.query_params.multi_items(), now_ms=service.audit.clock.now_ms())
    return found_object(await service.audit.find(wanted, caller))


@get("/v1/audit/responses/{response_id:str}")
async def read_turn(response_id: str, request: HttpRequest, service: Service, caller: Caller) -> Json:
    """One turn: what was asked, what the model saw, what it answered, and when each state was reached."""
    query = _query(request, "include")
    included = [each for each in query.get("include", "").split(",") if each]
    if unknown := set(included) - {"prompt_ids"}:
        raise InvalidRequestError(
            f"Unsupported include: {', '.join(sorted(unknown))[:64]}. Supported: prompt_ids.", param="include"
        )
    return turn_object(await service.audit.turn(response_id, caller, with_prompt_ids=bool(included)))


@get("/v1/audit/responses/{response_id:str}/events")
async def read_timeline(response_id: str, request: HttpRequest, service: Service, caller: Caller) -> Json:
    """The stored events of a response, each with the time since the first."""
    _query(request)
    head, events = await service.audit.events(response_id, caller)
    return timeline_object(head, events)


@get("/v1/audit/chains/{response_id:str}")
async def read_conversation(response_id: str, request: HttpRequest, service: Service, caller: Caller) -> Json:
    """The conversation that a response is part of, in the order to read it."""
    _query(request)
    return conversation_object(await service.audit.conversation(response_id, caller))


@get("/v1/audit/compare")
async def compare_turns(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """Two turns beside each other."""
    query = _query(request, "a", "b")
    for name in ("a", "b"):
        if name not in query:
            raise InvalidRequestError(f"Missing parameter {name}: compare requires a and b.", param=name)
    return comparison_object(
        await service.audit.compare(response_id(query["a"]), response_id(query["b"]), caller)
    )


@get("/v1/audit/usage")
async def sum_usage(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """Sums of turns and tokens, the most tokens first."""
    query = _query(request, "by", "since", "until")
    now_ms = service.audit.clock.now_ms()
    since_ms, until_ms = (
        read_time(name, query[name], now_ms=now_ms) if name in query else None for name in ("since", "until")
    )
    by = read_keys(query.get("by", "owner,model"))
    rows = await service.audit.usage(by, since_ms=since_ms, until_ms=until_ms)
    return {"object": "list", "data": [usage_row(row) for row in rows]}


@get("/v1/audit/export")
async def export_log(request: HttpRequest, service: Service, caller: Caller) -> Response[Any]:
    """The events of the log as JSON lines, in the order they were stored, behind a position."""
    query = _query(request, "after", "since", "until")
    now_ms = service.audit.clock.now_ms()
    since_ms, until_ms = (
        read_time(name, query[name], now_ms=now_ms) if name in query else None for name in ("since", "until")
    )
    ending = until_it_ends(request)
    ending.enter_context(service.quotas.streaming(caller.owner))
    begin = partial(service.audit.log.export, after=_position(query), since_ms=since_ms, until_ms=until_ms)
    export = Export(begin)
    ending.callback(export.close)
    await export.open()
    return FrameStream(export.chunks(), headers=_EXPORT_HEADERS)


def _query(request: HttpRequest, *known: str) -> dict[str, str]:
    """The query's parameters.

    Raises:
        InvalidRequestError: there is one that the route does not have, or one is given twice.
    """
    for name in request.query_params:
        if name not in known:
            valid = f"Valid parameters: {', '.join(known)}." if known else "This route has none."
            raise InvalidRequestError(f"Unknown parameter '{name[:64]}'. {valid}", param=name[:64])
    return single(request, *known)


def _position(query: dict[str, str]) -> int:
    text = query.get("after", "0")
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= _MOST_POSITION and len(text) <= 19):
        raise InvalidRequestError(
            "after must be a position, as in the last line of an export.", param="after"
        )
    return int(text)

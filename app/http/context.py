"""The routes of what a response is made from: its input items, and how many tokens they would be."""

import asyncio
from functools import partial
from typing import Any, cast, get_args

from litestar import Request, get, post
from litestar.datastructures import State
from litestar.exceptions import MethodNotAllowedException

from turnlog.adapters.openai.context import DEFAULT_ITEMS, MOST_ITEMS, item_page
from turnlog.adapters.openai.request import decode_count
from turnlog.app.audit.reading import MOST_LINKS
from turnlog.app.http.bodies import read_turn, single
from turnlog.app.http.service import Service
from turnlog.domain.audit.filters import Order
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.owners import Caller

Json = dict[str, Any]
HttpRequest = Request[None, None, State]


@get("/v1/responses/{response_id:str}/input_items")
async def list_input_items(response_id: str, request: HttpRequest, service: Service, caller: Caller) -> Json:
    """The items of the whole context, the newest first unless `order` says otherwise."""
    query = single(request, "after", "limit", "order")
    order, limit = query.get("order", "desc"), query.get("limit", str(DEFAULT_ITEMS))
    if order not in get_args(Order):
        raise InvalidRequestError("order must be asc or desc.", param="order")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MOST_ITEMS):
        raise InvalidRequestError(f"limit must be from 1 to {MOST_ITEMS}.", param="limit")
    asked = request.query_params
    include = {*asked.getall("include", []), *asked.getall("include[]", [])}
    page = partial(
        item_page, after=query.get("after"), limit=int(limit), order=cast(Order, order), include=include
    )
    async with service.retrieval.places.one(caller.owner):
        context = await service.retrieval.context(response_id, caller.owner, limit=MOST_LINKS)
        return await asyncio.wrap_future(service.in_turn(caller.owner, partial(page, context)))


@get("/v1/responses/input_tokens")
async def input_tokens_is_posted() -> None:
    """No response has this id, so whoever reads it means the count."""
    raise MethodNotAllowedException(headers={"Allow": "POST"})


@post("/v1/responses/input_tokens", status_code=200)
async def count_input_tokens(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """How many tokens the engine would read for this request: the number its turn would report."""
    command, size_bytes = await read_turn(decode_count, request, service, caller)
    with service.quotas.beginning(caller.owner):
        count = await service.turns.count(command, caller.owner, size_bytes=size_bytes)
    return {"object": "response.input_tokens", "input_tokens": count}

"""The routes of Chat Completions: the same turns as those of `responses`, read as completions."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.datastructures import State

from turnlog.adapters.openai.chat.chunks import HEARTBEAT, chunk_frames, without_usage
from turnlog.adapters.openai.chat.completion import completion_object
from turnlog.adapters.openai.chat.forms import CompletionUpdate
from turnlog.adapters.openai.chat.request import decode_chat
from turnlog.adapters.openai.chat.words import in_chat_words
from turnlog.adapters.openai.context import DEFAULT_ITEMS, MOST_ITEMS
from turnlog.adapters.openai.forms import Metadata
from turnlog.adapters.openai.frames import pieces
from turnlog.adapters.openai.limits import check_metadata, check_numbers
from turnlog.adapters.openai.typed import typed
from turnlog.app.http.bodies import read_body, read_turn, single
from turnlog.app.http.responses import AnswerForm, run_turn
from turnlog.app.http.service import Service
from turnlog.app.turns.live import FrameLog
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import InvalidRequestError, ResponseNotFoundError
from turnlog.domain.events import TurnCommitted
from turnlog.domain.ids import completion_id
from turnlog.domain.ids import response_id as response_id_of
from turnlog.domain.owners import Caller
from turnlog.domain.response import Response as Turn

_METADATA = re.compile(r"metadata\[(.*)\]", re.DOTALL)

Json = dict[str, Any]
HttpRequest = Request[None, None, State]


@post("/v1/chat/completions", status_code=200)
async def create_completion(request: HttpRequest, service: Service, caller: Caller) -> Response[Any]:
    """Run a turn; answer with its completion or, with `stream`, with its chunks."""
    with in_chat_words():
        decode = partial(decode_chat, stores=service.chat_store)
        command, size_bytes = await read_turn(decode, request, service, caller)
        form = AnswerForm(
            lambda response, _: completion_object(response),
            partial(chunk_bytes, with_usage=command.with_usage),
            render=chunk_frames,
            fails_cancelled=True,
        )
        return await run_turn(command, request, service, caller, form, size_bytes=size_bytes)


async def chunk_bytes(log: FrameLog, heartbeat_s: float, *, with_usage: bool) -> AsyncGenerator[bytes, None]:
    """A stream's bytes in pieces, with a heartbeat after each `heartbeat_s` of silence."""
    async with aclosing(log.read(silence_s=heartbeat_s)) as chunks:
        async for chunk in chunks:
            if not with_usage and chunk:
                chunk[-1] = without_usage(chunk[-1])
            for piece in pieces(chunk or [HEARTBEAT]):
                yield piece


@get("/v1/chat/completions")
async def list_completions(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """The stored completions, the oldest first unless `order` says otherwise."""
    wanted = _wanted(request)
    async with service.retrieval.places.one(caller.owner):
        page, found = await service.retrieval.page(wanted, caller.owner)
    completions = [completion_object(each) for each in found]
    return {
        "object": "list",
        "data": completions,
        "first_id": completions[0]["id"] if completions else None,
        "last_id": completion_id(page.last_id) if page.last_id else None,
        "has_more": page.has_more,
    }


def _wanted(request: HttpRequest) -> AuditFilter:
    """The committed turns of chats that the query asks for."""
    query = single(request, "after", "limit", "order", "model")
    limit = query.pop("limit", str(DEFAULT_ITEMS))
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:4]) <= MOST_ITEMS):
        raise InvalidRequestError(f"limit must be from 1 to {MOST_ITEMS}.", param="limit")
    if after := query.get("after"):
        query["after"] = response_id_of(after)
    metadata = {
        found[1]: value
        for name, value in request.query_params.multi_items()
        if (found := _METADATA.fullmatch(name))
    }
    asked: Json = {"order": "asc", **query, "limit": int(limit), "metadata": metadata}
    return AuditFilter(surface="chat", state="persisted", **asked)


@post("/v1/chat/completions/{response_id:str}", status_code=200)
async def update_completion(response_id: str, request: HttpRequest, service: Service, caller: Caller) -> Json:
    """The completion with other metadata, in place of all that it had."""
    metadata = (await read_body(request, CompletionUpdate)).metadata or {}
    typed(metadata, Metadata, "metadata")
    check_metadata(metadata)
    check_numbers("metadata", metadata)
    await _completion(response_id, service, caller)
    await service.metadata.change(response_id, caller.owner, metadata)
    return completion_object(await _completion(response_id, service, caller))


@get("/v1/chat/completions/{response_id:str}")
async def read_completion(response_id: str, service: Service, caller: Caller) -> Json:
    """A stored completion."""
    return completion_object(await _completion(response_id, service, caller))


@delete("/v1/chat/completions/{response_id:str}", status_code=200)
async def delete_completion(response_id: str, service: Service, caller: Caller) -> Json:
    """The completion is gone for its owner, and so is what was said in it."""
    await _completion(response_id, service, caller)
    await service.deletion.delete(response_id, caller.owner)
    return {"id": completion_id(response_id), "object": "chat.completion.deleted", "deleted": True}


async def _completion(response_id: str, service: Service, caller: Caller) -> Turn:
    """The committed turn of a chat.

    Raises:
        ResponseNotFoundError: the caller has none of that id.
    """
    async with service.retrieval.places.one(caller.owner):
        response, _ = await service.retrieval.response(response_id, caller.owner)
    if response.created.surface != "chat" or not isinstance(response.ended, TurnCommitted):
        raise ResponseNotFoundError(response_id)
    return response

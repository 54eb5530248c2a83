"""The routes by which an operator stops and deletes turns, whoever's; what was said is not shown."""

import asyncio
from pathlib import Path
from typing import Any

from litestar import Request, post
from litestar.datastructures import State

from turnlog.adapters.openai.forms import BackupFile, Removal, ResponseName
from turnlog.app.access import is_on_this_machine
from turnlog.app.http.bodies import read_body
from turnlog.app.http.service import Service
from turnlog.domain.errors import ForbiddenError, InvalidRequestError
from turnlog.domain.ids import response_id
from turnlog.domain.owners import Caller
from turnlog.domain.response import api_status

Json = dict[str, Any]
HttpRequest = Request[None, None, State]


@post("/v1/operations/backup", status_code=200)
async def back_up(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """Copy the log to a new file of the server's machine, whose user alone may read it."""
    asked = await read_body(request, BackupFile)
    if not is_on_this_machine(caller):
        raise ForbiddenError("A backup is made on the server's machine: turnlog backup FILE")
    if not (target := Path(asked.path)).is_absolute():
        raise InvalidRequestError("path must be absolute.", param="path")
    size_bytes = await asyncio.wrap_future(service.copier.backup(target))
    return {"object": "operation.backup", "path": str(target), "size_bytes": size_bytes}


@post("/v1/operations/cancel", status_code=200)
async def cancel_turn(request: HttpRequest, service: Service) -> Json:
    """Stop a turn that is queued or running; how it ended, or had ended before."""
    asked = await read_body(request, ResponseName)
    asked_id = response_id(asked.response_id)
    if turn := await service.cancellation.cancel(asked_id, None):
        status: str = api_status(turn.response)
    else:
        row, _ = await service.retrieval.stored(asked_id)
        status = row.status
    return {"id": asked_id, "object": "operation.cancel", "status": status}


@post("/v1/operations/delete", status_code=200)
async def delete_turns(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """Delete a response, the conversation of one, or all that an owner has."""
    asked = await read_body(request, Removal)
    match asked:
        case Removal(response_id=str() as given, chain=None, owner=None):
            count = await service.deletion.erase(response_id(given), caller.owner)
        case Removal(response_id=None, chain=str() as given, owner=None):
            count = await service.deletion.erase_chain(response_id(given), caller.owner)
        case Removal(response_id=None, chain=None, owner=str() as owner):
            count = await service.deletion.erase_owner(owner, caller.owner)
        case _:
            raise InvalidRequestError("Name one of response_id, chain and owner.", param="body")
    return {"object": "operation.delete", "deleted": count}

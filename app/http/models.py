"""The routes of models: what is declared and in memory, and an operator's changes to it."""

from typing import Any
from urllib.parse import unquote

from litestar import Request, get, post
from litestar.datastructures import State

from turnlog.adapters.openai.forms import ModelName, ModelSwap
from turnlog.app.access import OPERATOR
from turnlog.app.http.bodies import read_body
from turnlog.app.http.service import Service
from turnlog.app.models.status import ModelStatus
from turnlog.domain.owners import Caller

Json = dict[str, Any]
HttpRequest = Request[None, None, State]


@get("/v1/models")
async def list_models(service: Service, caller: Caller) -> Json:
    """The declared models, loaded or not (R-006, D-16)."""
    return {"object": "list", "data": [model_object(status, caller) for status in service.models.listed()]}


# A model may be called like an operator's route.
@get(["/v1/models/{name:path}", "/v1/models/load", "/v1/models/unload", "/v1/models/swap"])
async def read_model(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """One of them; clients ask for it to see whether a name is known, a slash in it escaped or not."""
    # As it was sent: to the router `a//b` is `a/b`.
    name = unquote(request.scope["raw_path"].decode("latin-1")).removeprefix("/v1/models/")
    return model_object(service.models.status(name), caller)


@post("/v1/models/load", status_code=200)
async def load_model(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """Load a declared model; answered once it is in memory."""
    asked = await read_body(request, ModelName)
    return model_object(await service.models.load(asked.name), caller)


@post("/v1/models/unload", status_code=200)
async def unload_model(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """Take a model out of memory; it stays declared, and the next request for it loads it again."""
    asked = await read_body(request, ModelName)
    return model_object(await service.models.unload(asked.name), caller)


@post("/v1/models/swap", status_code=200)
async def swap_model(request: HttpRequest, service: Service, caller: Caller) -> Json:
    """Let a name mean what another name means, from the next turn on."""
    asked = await read_body(request, ModelSwap)
    return model_object(await service.models.swap(asked.name, asked.to), caller)


def model_object(status: ModelStatus, caller: Caller) -> Json:
    """The model object of the API, and for operators what goes on: it tells of other owners' turns."""
    told: Json = {
        "id": status.name,
        "object": "model",
        "created": status.registered_s,
        "owned_by": "turnlog",
        "state": status.state,
        "aliases": status.aliases,
        "weight_bytes": status.weight_bytes,
        "capacity": status.capacity,
        "defaults": status.defaults.given(),
    }
    if not caller.is_any_of(OPERATOR):
        return told
    return told | {
        "instance_id": status.instance_id,
        "active_turns": status.active_turns,
        "queued_turns": status.queued_turns,
        "process_id": status.process_id,
        "memory_bytes": status.memory_bytes,
        "restarts": status.restarts,
        "last_crash": status.last_crash,
        "unavailable": status.unavailable,
        "permits": status.reservations,
        "queue_limit": status.queue_limit,
        "loads": status.loads,
    }

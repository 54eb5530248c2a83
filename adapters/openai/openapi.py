"""The OpenAPI document: what clients may send, in the numbers of this server, and what comes back.

The bodies are the structs that decode them.
"""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec import Struct

from turnlog.adapters.openai.chat.forms import ChatBody, ChatMessage, CompletionUpdate
from turnlog.adapters.openai.context import MOST_ITEMS
from turnlog.adapters.openai.forms import (
    ITEMS,
    REFERENCE,
    TOOLS,
    BackupFile,
    Metadata,
    ModelName,
    ModelSwap,
    Removal,
    RequestBody,
    ResponseName,
)
from turnlog.adapters.openai.limits import IDEMPOTENCY_KEY_CHARACTERS, RequestLimits
from turnlog.adapters.openai.replay import ReplayBody
from turnlog.domain.audit.filters import MAX_LIMIT, Order
from turnlog.domain.audit.rows import ApiStatus
from turnlog.domain.events import FailureReason, Surface
from turnlog.domain.lifecycle import Status

Json = dict[str, Any]

REFUSALS = {
    400: "The request breaks a rule; `param` names the field.",
    401: "The API key is missing or invalid.",
    403: "The caller is not allowed to do this.",
    404: "Not found.",
    405: "Method not allowed.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    414: "The request target is too long.",
    415: "The body is not JSON, or its Content-Encoding is not supported.",
    422: "The idempotency key was already used with a different body.",
    426: "Not supported.",
    429: "Too many requests; retry after `Retry-After`.",
    431: "The headers are too large.",
    500: "The turn failed, or an internal error occurred; see the log for details.",
    503: "Temporarily unavailable; retry later.",
    504: "The engine timed out.",
}

_TURN = (400, 401, 403, 404, 408, 413, 414, 415, 429, 431, 500, 503, 504)
_CHANGE = _TURN[:-1]
_READ = (400, 401, 403, 404, 408, 414, 429, 431, 500, 503)

_CHUNKED = {"application/json": "Completion", "text/event-stream": "Event"}
_STREAMED = {"application/json": "Response", "text/event-stream": "Event"}


def document(limits: RequestLimits, *, version: str, max_body_bytes: int) -> Json:
    """The document as JSON."""
    operations = (ModelName, ModelSwap, ResponseName, BackupFile, Removal)
    forms = (
        RequestBody,
        ChatBody,
        ChatMessage,
        CompletionUpdate,
        *ITEMS,
        *TOOLS,
        Metadata,
        ReplayBody,
        *operations,
    )
    _, bodies = msgspec.json.schema_components(forms, ref_template=REFERENCE)
    sizes = (
        f"The body has at most {max_body_bytes} bytes, also after decompression (gzip, deflate, zstd), "
        f"{limits.json_depth} levels and about {limits.json_values} values. A JSON schema in it has at most "
        f"{limits.schema_bytes} bytes and {limits.schema_depth} levels."
    )
    count = _operation("Count the input tokens of a request", "InputTokens", body=RequestBody, statuses=_TURN)
    turn = _operation("Run a turn", _STREAMED, _IDEMPOTENCY_KEY, body=RequestBody, statuses=(*_TURN, 422))
    chat = _operation(
        "Run a turn of a chat", _CHUNKED, _IDEMPOTENCY_KEY, body=ChatBody, statuses=(*_TURN, 422)
    )
    turn["description"] = chat["description"] = sizes
    return {
        "openapi": "3.1.0",
        "info": {"title": "turnlog", "version": version},
        "paths": {
            "/v1/responses": {"post": turn, "get": _UPGRADE},
            "/v1/responses/input_tokens": {"post": count, "get": _NOT_THERE},
            "/v1/chat/completions": {"post": chat, **_COMPLETIONS},
            **_PATHS,
        },
        "components": {
            "schemas": _SCHEMAS | _numbered(bodies, limits),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _numbered(schema: Any, limits: RequestLimits) -> Any:
    """The schema with the names of limits replaced by their numbers."""
    if isinstance(schema, list):
        return [_numbered(each, limits) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: getattr(limits, each)
        if key in ("maxLength", "maxItems") and isinstance(each, str)
        else _numbered(each, limits)
        for key, each in schema.items()
    }


# ── operations ────────────────────────────────────────────────────────────────────────────────────


def _operation(
    summary: str,
    answer: str | Mapping[str, str],
    *parameters: Json,
    body: type[Struct] | None = None,
    optional: bool = False,
    statuses: tuple[int, ...] = _READ,
) -> Json:
    """An operation of a path.

    Args:
        answer: the schema of its JSON, or a schema for each media type.
        optional: whether the body may be left out.
    """
    content = {"application/json": answer} if isinstance(answer, str) else answer
    operation: Json = {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": {"description": summary, "content": _content(content)}, **_refused(statuses)},
    }
    if body:
        form = _content({"application/json": body.__name__})
        operation["requestBody"] = {"required": not optional, "content": form}
    return operation


def _content(schemas: Mapping[str, str]) -> Json:
    return {
        media_type: {"schema": {"$ref": REFERENCE.format(name=name)}} for media_type, name in schemas.items()
    }


def _refused(statuses: tuple[int, ...]) -> Json:
    content = _content({"application/json": "Error"})
    return {str(status): {"description": REFUSALS[status], "content": content} for status in statuses}


def _change(summary: str, body: type[Struct], answer: str = "Model", *parameters: Json) -> Json:
    return {"post": _operation(summary, answer, *parameters, body=body, statuses=_CHANGE)}


def _get(summary: str, answer: str | Mapping[str, str], *parameters: Json) -> Json:
    return {"get": _operation(summary, answer, *parameters)}


def _query(name: str, **schema: Any) -> Json:
    return {"name": name, "in": "query", "schema": schema or _STRING}


def _path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _STRING}


def _count(name: str, *, least: int = 0, most: int = 10**18 - 1) -> Json:
    return _query(name, type="integer", minimum=least, maximum=most)


_STRING = {"type": "string"}
_NULLABLE = {"type": ["string", "null"]}
_ID = _path("response_id")
_IDEMPOTENCY_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Requests with the same key run one turn.",
    "schema": {"type": "string", "maxLength": IDEMPOTENCY_KEY_CHARACTERS},
}

_CONDITIONS = (
    _query("since"),
    _query("until"),
    _query("state", enum=[status.value for status in Status]),
    _query("status", enum=list(get_args(ApiStatus))),
    _query("reason", enum=list(get_args(FailureReason))),
    _query("surface", enum=list(get_args(Surface))),
    *map(_query, ("model", "owner", "chain", "replay_of", "tool")),
    _count("min_latency_ms"),
    _count("min_tokens"),
    _query("q", type="string", minLength=1),
    _query("metadata.KEY") | {"description": "The metadata value of any KEY."},
    _query("order", enum=list(get_args(Order))),
    _query("after"),
    _count("limit", least=1, most=MAX_LIMIT),
)

_UPGRADE: Json = {
    "summary": "Open a WebSocket (docs/websocket.md); 426 without a handshake",
    "responses": {"101": {"description": "The connection is a WebSocket"}, **_refused((*_READ, 426, 429))},
}
_NOT_THERE: Json = {"summary": "Not supported: 405", "responses": _refused((405, *_READ))}
_REPLAY = _operation(
    "Replay a finished turn",
    _STREAMED | {"application/json": "Replay"},
    _ID,
    body=ReplayBody,
    optional=True,
    statuses=_TURN,
)
_READY = _operation("Check whether the server can accept turns", "Ready")
_READY["responses"]["503"] = {
    "description": "The server cannot accept turns.",
    "content": _content({"application/json": "Ready"}),
}

_COMPLETIONS = _get(
    "List the stored completions",
    "Page",
    _query("after"),
    _count("limit", least=1, most=MOST_ITEMS),
    _query("order", enum=list(get_args(Order))),
    _query("model"),
    _query("metadata[KEY]") | {"description": "The metadata value of any KEY."},
)

_PATHS: Json = {
    "/v1/chat/completions/{response_id}": {
        **_get("Get a stored completion", "Completion", _ID),
        **_change("Change the metadata of a stored completion", CompletionUpdate, "Completion", _ID),
        "delete": _operation("Delete a stored completion", "Deleted", _ID),
    },
    "/v1/responses/{response_id}": {
        **_get(
            "Get a response",
            _STREAMED,
            _ID,
            _query("stream", type="boolean"),
            _query("include_obfuscation", type="boolean"),
            _query("starting_after", type="integer", minimum=-1),
        ),
        "delete": _operation("Delete a response; its turn is cancelled first", "Deleted", _ID),
    },
    "/v1/responses/{response_id}/events": _get("List the stored events of a response", "List", _ID),
    "/v1/responses/{response_id}/input_items": _get(
        "List the items that a response was generated from",
        "Page",
        _ID,
        _query("after"),
        _count("limit", least=1, most=MOST_ITEMS),
        _query("order", enum=list(get_args(Order))),
        _query("include"),
    ),
    "/v1/responses/{response_id}/cancel": {
        "post": _operation("Cancel a queued or running turn", "Response", _ID)
    },
    "/v1/responses/{response_id}/replay": {"post": _REPLAY},
    "/v1/audit/responses": _get("Find responses", "FoundPage", *_CONDITIONS),
    "/v1/audit/responses/{response_id}": _get(
        "Get a turn", "AuditTurn", _ID, _query("include", enum=["prompt_ids"])
    ),
    "/v1/audit/responses/{response_id}/events": _get(
        "List the stored events of a response with their elapsed times", "List", _ID
    ),
    "/v1/audit/chains/{response_id}": _get("Get the conversation of a response", "Page", _ID),
    "/v1/audit/compare": _get(
        "Compare two turns", "Comparison", *(_query(side) | {"required": True} for side in "ab")
    ),
    "/v1/audit/usage": _get("Sum turns and tokens", "List", _query("by"), _query("since"), _query("until")),
    "/v1/audit/export": _get(
        "Export the events of the log as JSON lines",
        {"application/jsonl": "Text"},
        _count("after", most=2**63 - 1),
        _query("since"),
        _query("until"),
    ),
    "/v1/models": _get("List the served models", "List"),
    "/v1/models/{name}": _get("Get a served model", "Model", _path("name")),
    "/v1/models/load": _change("Load a declared model", ModelName),
    "/v1/models/unload": _change("Unload a model", ModelName),
    "/v1/models/swap": _change("Point a name at another declared model", ModelSwap),
    "/v1/operations/backup": _change("Copy the log to a file of the server's machine", BackupFile, "Backup"),
    "/v1/operations/cancel": _change("Cancel a turn of any owner", ResponseName, "Cancelled"),
    "/v1/operations/delete": _change("Delete responses of any owner", Removal, "DeletedCount"),
    "/metrics": _get(
        "Get the Prometheus metrics", {"text/plain": "Text", "application/openmetrics-text": "Text"}
    ),
    "/health": _get("Check whether the server is alive", "Status"),
    "/v1/health": _get("Check whether the server is alive", "Status"),
    "/health/ready": {"get": _READY},
    "/": {
        "get": _operation("Identify the service", "Service"),
        "head": {
            "summary": "Identify the service",
            "responses": {"200": {"description": "turnlog"}, **_refused(_READ)},
        },
    },
    "/openapi.json": _get("Get this document", "Document"),
}


# ── what comes back ───────────────────────────────────────────────────────────────────────────────


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_OBJECTS = {"type": "array", "items": {"type": "object"}}
_PAGE: Json = {
    "object": {"const": "list"},
    "data": _OBJECTS,
    "has_more": {"type": "boolean"},
    "last_id": _NULLABLE,
}
_SCHEMAS: Json = {
    "Text": _STRING,
    "Error": _object(error=_object(type=_STRING, message=_STRING, code=_STRING, param=_NULLABLE)),
    "Response": _object(
        id=_STRING, object={"const": "response"}, status={"enum": list(get_args(ApiStatus))}, output=_OBJECTS
    ),
    "InputTokens": _object(object={"const": "response.input_tokens"}, input_tokens={"type": "integer"}),
    "Completion": _object(id=_STRING, object={"const": "chat.completion"}, choices=_OBJECTS),
    "Deleted": _object(
        id=_STRING, object={"enum": ["response", "chat.completion.deleted"]}, deleted={"const": True}
    ),
    "DeletedCount": _object(object={"const": "operation.delete"}, deleted={"type": "integer"}),
    "Backup": _object(object={"const": "operation.backup"}, path=_STRING, size_bytes={"type": "integer"}),
    "Cancelled": _object(id=_STRING, object={"const": "operation.cancel"}, status=_STRING),
    "List": _object(object={"const": "list"}, data=_OBJECTS),
    "Event": {
        "type": "object",
        "description": "One event of the stream. Its data is JSON; the last one is `[DONE]`.",
        "properties": {"event": _STRING, "data": _STRING},
        "required": ["data"],
    },
    "Page": _object(**_PAGE),
    "FoundPage": _object(**_PAGE, scan={"type": ["object", "null"]}),
    "AuditTurn": _object(
        id=_STRING,
        object={"const": "audit.turn"},
        owner=_STRING,
        content={"enum": ["shown", "withheld", "expired"]},
    ),
    "Comparison": _object(object={"const": "audit.comparison"}),
    "Check": _object(
        object={"const": "replay.check"}, original=_STRING, replay=_STRING, identical={"type": "boolean"}
    ),
    "Replay": {"anyOf": [{"$ref": REFERENCE.format(name=name)} for name in ("Response", "Check")]},
    "Model": _object(id=_STRING, object={"const": "model"}, created={"type": "integer"}, owned_by=_STRING),
    "Status": _object(status={"const": "ok"}),
    "Ready": _object(status={"enum": ["ok", "unavailable"]}),
    "Service": _object(service={"const": "turnlog"}),
    "Document": _object(openapi=_STRING, paths={"type": "object"}),
}

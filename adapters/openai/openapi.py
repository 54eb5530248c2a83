"""The OpenAPI document: what clients may send, in the numbers of this server, and what comes back."""

from typing import Any, get_args

from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.request_schema import request_schema
from turnlog.domain.audit.filters import MAX_LIMIT, MIN_QUERY_CHARACTERS, Order
from turnlog.domain.audit.rows import ApiStatus
from turnlog.domain.events import FailureReason
from turnlog.domain.lifecycle import Status

Json = dict[str, Any]

REFUSALS = {
    400: "The request breaks a rule; `param` names the field.",
    401: "There is no such key, or none was sent and one is wanted.",
    403: "The caller may not do this.",
    404: "What the request names is not there.",
    405: "The route has no such method.",
    408: "The request did not come in time.",
    413: "The body is too large.",
    415: "The body is no JSON, or compressed in a way that is not read here.",
    429: "Too much is asked for at once; try again after `Retry-After`.",
    431: "The headers are too large.",
    500: "The turn failed, or turnlog did; the log has the details.",
    503: "Not now; the same request may succeed later.",
    504: "The engine took too long.",
}

_TURN = (400, 401, 403, 404, 408, 413, 415, 429, 431, 500, 503, 504)
_CHANGE = _TURN[:-1]
_READ = (400, 401, 403, 404, 408, 429, 431, 500, 503)


def document(limits: RequestLimits, *, version: str, max_body_bytes: int) -> Json:
    """The document as JSON."""
    turn = {
        "summary": "Run a turn",
        "description": f"The body has at most {max_body_bytes} bytes, also when it was compressed "
        f"(gzip, deflate, zstd), {limits.json_depth} levels and about {limits.json_values} values. A JSON "
        f"schema in it has at most {limits.schema_bytes} bytes and {limits.schema_depth} levels.",
        "requestBody": {"required": True, "content": _json(_ref("Request"))},
        "responses": {
            "200": _answer("The response, or its stream", "Response", streams=True),
            **_refused(_TURN),
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "turnlog", "version": version},
        "paths": {
            "/v1/responses": {
                "post": turn,
                "get": {
                    "summary": "Not there: 405; 426 for a WebSocket",
                    "responses": _refused((405, *_READ), 426),
                },
            },
            "/v1/responses/{response_id}": {
                "get": _get("A response", "Response", "response_id", streams=True, query=_STREAM_QUERY)
            },
            "/v1/responses/{response_id}/events": {"get": _get("Its stored events", "List", "response_id")},
            "/v1/responses/{response_id}/replay": {"post": _replay()},
            **_audit_paths(),
            "/v1/models": {"get": _get("The served models", "List")},
            "/v1/models/{name}": {"get": _get("A served model", "Model", "name")},
            "/v1/models/load": {"post": _change("Load a declared model", "Model", _object(name=_STRING))},
            "/v1/models/unload": {
                "post": _change("Take a model out of memory", "Model", _object(name=_STRING)),
            },
            "/v1/models/swap": {
                "post": _change(
                    "Let a name mean another declared model", "Model", _object(name=_STRING, to=_STRING)
                ),
            },
            "/metrics": {"get": _metrics()},
            "/health": {"get": _get("Whether the server is alive", "Status")},
            "/v1/health": {"get": _get("The same", "Status")},
            "/health/ready": {"get": _ready()},
            "/": {
                "get": _get("What answers here", "Service"),
                "head": {
                    "summary": "The same",
                    "responses": {"200": {"description": "turnlog"}, **_refused(_READ)},
                },
            },
            "/openapi.json": {"get": _get("This document", "Document")},
        },
        "components": {
            "schemas": _SCHEMAS | {"Request": request_schema(limits)},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _audit_paths() -> Json:
    """What auditors read, and operators as far as they may."""
    audit = "/v1/audit"
    return {
        f"{audit}/responses": {"get": _get("Find responses", "Page", query=_CONDITIONS)},
        f"{audit}/responses/{{response_id}}": {
            "get": _get("A turn", "AuditTurn", "response_id", query=(_word("include", "prompt_ids"),)),
        },
        f"{audit}/responses/{{response_id}}/events": {
            "get": _get("Its stored events, with the time since the first", "List", "response_id"),
        },
        f"{audit}/chains/{{response_id}}": {"get": _get("Its conversation", "Page", "response_id")},
        f"{audit}/compare": {
            "get": _get("Two turns beside each other", "Comparison", query=(_needed("a"), _needed("b"))),
        },
        f"{audit}/export": {"get": _export()},
    }


def _replay() -> Json:
    body = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["rerun", "retell", "check"]},
            "model": _NULLABLE,
            "seed": {"enum": ["same", "new"]},
            "set": {"type": "object"},
            "stream": {"type": "boolean"},
            "pace": {"enum": ["fast", "original"]},
            "yields": {"type": "boolean"},
        },
    }
    route = _change("Replay a turn that is over", "Replay", body, needed=False, statuses=_TURN, streams=True)
    return route | {"parameters": [_path("response_id")]}


def _metrics() -> Json:
    text = {"schema": _STRING}
    route = _get("The metrics, for Prometheus", "Status")
    content = {"text/plain": text, "application/openmetrics-text": text}
    route["responses"]["200"] = {"description": "The metrics", "content": content}
    return route


def _export() -> Json:
    query = (_count("after", most=2**63 - 1), _word("since"), _word("until"))
    route = _get("The events of the log, one a line", "List", query=query)
    content = {"application/jsonl": {"schema": _STRING}}
    route["responses"]["200"] = {"description": "Events, and last a position", "content": content}
    return route


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _answer(description: str, schema: str, *, streams: bool = False) -> Json:
    stream = {"text/event-stream": {"schema": _ref("Event")}} if streams else {}
    return {"description": description, "content": _json(_ref(schema)) | stream}


def _refused(statuses: tuple[int, ...], *more: int) -> Json:
    return {
        str(status): {
            "description": REFUSALS.get(status, "Not supported."),
            "content": _json(_ref("Error")),
        }
        for status in (*statuses, *more)
    }


def _get(
    summary: str,
    schema: str,
    parameter: str | None = None,
    *,
    streams: bool = False,
    query: tuple[Json, ...] = (),
) -> Json:
    return {
        "summary": summary,
        "parameters": [*([_path(parameter)] if parameter else []), *query],
        "responses": {"200": _answer(summary, schema, streams=streams), **_refused(_READ)},
    }


def _change(
    summary: str,
    schema: str,
    body: Json,
    *,
    needed: bool = True,
    statuses: tuple[int, ...] = _CHANGE,
    streams: bool = False,
) -> Json:
    return {
        "summary": summary,
        "requestBody": {"required": needed, "content": _json(body | {"additionalProperties": False})},
        "responses": {"200": _answer(summary, schema, streams=streams), **_refused(statuses)},
    }


def _path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _ready() -> Json:
    route = _get("Whether the server can take turns, and why not", "Ready")
    route["responses"]["503"] = _answer("It cannot.", "Ready")
    return route


def _flag(name: str) -> Json:
    return {"name": name, "in": "query", "schema": {"type": "boolean"}}


def _word(name: str, *words: str) -> Json:
    return {"name": name, "in": "query", "schema": {"enum": list(words)} if words else {"type": "string"}}


def _count(name: str, *, least: int = 0, most: int = 10**18 - 1) -> Json:
    return {
        "name": name,
        "in": "query",
        "schema": {"type": "integer", "minimum": least, "maximum": most},
    }


def _needed(name: str) -> Json:
    return _word(name) | {"required": True}


_CONDITIONS = (
    _word("since"),
    _word("until"),
    _word("state", *(status.value for status in Status)),
    _word("status", *get_args(ApiStatus)),
    _word("reason", *get_args(FailureReason)),
    *map(_word, ("model", "owner", "chain", "replay_of", "tool")),
    _count("min_latency_ms"),
    _count("min_tokens"),
    {"name": "q", "in": "query", "schema": {"type": "string", "minLength": MIN_QUERY_CHARACTERS}},
    {
        "name": "metadata.KEY",
        "in": "query",
        "description": "For any KEY of the metadata: its value.",
        "schema": {"type": "string"},
    },
    _word("order", *get_args(Order)),
    _word("after"),
    _count("limit", least=1, most=MAX_LIMIT),
)

_STREAM_QUERY = (
    _flag("stream"),
    _flag("include_obfuscation"),
    {"name": "starting_after", "in": "query", "schema": {"type": "integer", "minimum": -1}},
)

_STRING = {"type": "string"}
_NULLABLE = {"type": ["string", "null"]}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_SCHEMAS: Json = {
    "Error": _object(error=_object(type=_STRING, message=_STRING, code=_STRING, param=_NULLABLE)),
    "Response": _object(
        id=_STRING,
        object={"const": "response"},
        status={"enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]},
        output={"type": "array", "items": {"type": "object"}},
    ),
    "List": _object(object={"const": "list"}, data={"type": "array", "items": {"type": "object"}}),
    "Event": {
        "type": "object",
        "description": "One event of the stream; its data is JSON, and `[DONE]` at the end.",
        "properties": {"event": _STRING, "data": _STRING},
        "required": ["data"],
    },
    "Page": _object(
        object={"const": "list"},
        data={"type": "array", "items": {"type": "object"}},
        has_more={"type": "boolean"},
        last_id=_NULLABLE,
    ),
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
    "Replay": {"anyOf": [_ref("Response"), _ref("Check")]},
    "Model": _object(id=_STRING, object={"const": "model"}, created={"type": "integer"}, owned_by=_STRING),
    "Status": _object(status={"const": "ok"}),
    "Ready": {
        "type": "object",
        "properties": {"status": {"enum": ["ok", "unavailable"]}},
        "required": ["status"],
    },
    "Service": _object(service={"const": "turnlog"}),
    "Document": _object(openapi=_STRING, paths={"type": "object"}),
}

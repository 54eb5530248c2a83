"""The JSON schema of a request, made from the numbers that the decoder goes by.

It says what is understood. Other fields are ignored, and so is a value of another type where the
specification says so (R-020).
"""

from typing import Any, get_args

from turnlog.adapters.openai.limits import (
    METADATA_KEY_CHARACTERS,
    METADATA_PAIRS,
    METADATA_VALUE_CHARACTERS,
    RequestLimits,
)
from turnlog.adapters.openai.request import INTEGERS, RANGES, Effort
from turnlog.domain.retention import RETENTION_RANGE_S

Json = dict[str, Any]

FLAGS = ("stream", "store", "parallel_tool_calls")


def request_schema(limits: RequestLimits) -> Json:
    """The schema of the body of `POST /v1/responses`."""
    name = {"type": "string", "maxLength": limits.name_chars}
    properties: Json = {
        "model": name | {"minLength": 1},
        "input": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"anyOf": _items(name)}, "maxItems": limits.input_items},
            ]
        },
        "instructions": _or_null({"type": "string", "maxLength": limits.instructions_chars}),
        "tools": _or_null({"type": "array", "items": {"anyOf": _tools(name)}, "maxItems": limits.tools}),
        "tool_choice": _or_null({"anyOf": _choices(name, limits)}),
        "text": _or_null(
            _object({"format": {"anyOf": _formats(name)}, "verbosity": _one_of("low", "medium", "high")})
        ),
        "reasoning": _or_null(_object({"effort": _one_of(*get_args(Effort)), "summary": {"type": "string"}})),
        "stop": _or_null({"anyOf": _stops(limits)}),
        "include": _or_null({"type": "array", "items": {"type": "string"}}),
        "truncation": _or_null(_one_of("auto", "disabled")),
        "metadata": _or_null(_metadata()),
        "stream_options": _or_null(_object({"include_obfuscation": {"type": "boolean"}})),
        **{flag: _or_null({"type": "boolean"}) for flag in FLAGS},
        **{field: _or_null(_number(field)) for field in RANGES},
    }
    for field in ("previous_response_id", "prompt_cache_key", "cache_salt", "safety_identifier"):
        properties[field] = _or_null(name)
    return _object(properties, "model", "input")


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _one_of(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


def _typed(kind: str, properties: Json, *required: str) -> Json:
    return _object({"type": {"const": kind}, **properties}, "type", *required)


def _number(field: str) -> Json:
    low, high = RANGES[field]
    return {"type": "integer" if field in INTEGERS else "number", "minimum": low, "maximum": high}


def _metadata() -> Json:
    low, high = RETENTION_RANGE_S
    return {
        "type": "object",
        "properties": {"retention_seconds": {"type": "integer", "minimum": low, "maximum": high}},
        "additionalProperties": {"type": "string", "maxLength": METADATA_VALUE_CHARACTERS},
        "maxProperties": METADATA_PAIRS,
        "propertyNames": {"maxLength": METADATA_KEY_CHARACTERS},
    }


def _stops(limits: RequestLimits) -> list[Json]:
    stop = {"type": "string", "minLength": 1, "maxLength": limits.stop_chars}
    return [stop, {"type": "array", "items": stop, "maxItems": limits.stops}]


def _parts(*kinds: str) -> Json:
    text = {"type": "string"}
    parts = [_typed(kind, {"text": text}, "text") for kind in kinds]
    return {"anyOf": [text, {"type": "array", "items": {"anyOf": parts}}]}


def _items(name: Json) -> list[Json]:
    """The input items that are understood; one of another type is skipped, or read if it has text."""
    said = {"role": _one_of("user", "system", "developer"), "content": _parts("input_text", "text")}
    answered = {"role": {"const": "assistant"}, "content": _parts("output_text", "text")}
    called = {"call_id": name, "name": name, "namespace": name}
    output = {"call_id": name, "output": _parts("input_text")}
    thought = {"type": "array", "items": _typed("summary_text", {"text": {"type": "string"}}, "text")}
    return [
        _object({"type": {"const": "message"}, **said}, "role", "content"),
        _object({"type": {"const": "message"}, **answered}, "role", "content"),
        _typed("function_call", called | {"arguments": {"type": "string"}}, "call_id", "name", "arguments"),
        _typed("function_call_output", output, "call_id", "output"),
        _typed("custom_tool_call", called | {"input": {"type": "string"}}, "call_id", "name", "input"),
        _typed("custom_tool_call_output", output, "call_id", "output"),
        _typed("reasoning", {"summary": thought}, "summary"),
        _typed("item_reference", {"id": name | {"minLength": 1}}, "id"),
        _typed("additional_tools", {"tools": {"type": "array", "items": {"type": "object"}}}, "tools"),
    ]


def _tools(name: Json) -> list[Json]:
    """The tools that are offered to the model; one of another type is accepted and shown again (D-07)."""
    named = {"name": name | {"minLength": 1}, "description": {"type": "string"}}
    schema = {"parameters": _or_null({"type": "object"}), "strict": _or_null({"type": "boolean"})}
    function = _typed("function", named | schema, "name")
    custom = _typed("custom", named, "name")
    members = {"tools": {"type": "array", "items": {"anyOf": [function, custom]}}}
    return [function, custom, _typed("namespace", named | members, "name", "tools")]


def _choices(name: Json, limits: RequestLimits) -> list[Json]:
    chosen = [_typed(kind, {"name": name, "namespace": name}, "name") for kind in ("function", "custom")]
    some = {"mode": _one_of("auto", "required"), "tools": {"type": "array", "items": {"anyOf": chosen}}}
    some["tools"]["maxItems"] = limits.tools
    return [_one_of("none", "auto", "required"), *chosen, _typed("allowed_tools", some, "mode", "tools")]


def _formats(name: Json) -> list[Json]:
    schema = {"name": name, "schema": {"type": "object"}, "strict": _or_null({"type": "boolean"})}
    return [_typed("text", {}), _typed("json_object", {}), _typed("json_schema", schema, "schema")]

"""What a request may cost: the bounds of a body, most of them settings, and the refusals that name them."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.adapters.openai.forms import (
    METADATA_KEY_CHARACTERS,
    METADATA_PAIRS,
    METADATA_VALUE_CHARACTERS,
    FunctionTool,
    JsonSchemaFormat,
    RequestBody,
    Tool,
)
from turnlog.adapters.openai.typed import bounds, out_of_range
from turnlog.domain.audit.search import metadata_texts
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import IDEMPOTENCY_KEY
from turnlog.domain.schemas import check_schema

Json = dict[str, Any]

_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _STEPS)
_SIZES = {
    str: ("characters", "string_above_max_length"),
    list: ("entries", "array_above_max_length"),
    dict: ("pairs", "object_above_max_properties"),
}


IDEMPOTENCY_KEY_CHARACTERS = 255


class RequestLimits(Struct, frozen=True, kw_only=True):
    """The most that a body may have of each thing.

    `name_chars` bounds what only names something: models, ids, cache keys, tools, types.
    """

    json_depth: int = 100
    json_values: int = 200_000
    input_items: int = 10_000
    instructions_chars: int = 1_000_000
    name_chars: int = 512
    tools: int = 512
    schema_bytes: int = 64 * 1024
    schema_depth: int = 32
    stops: int = 16
    stop_chars: int = 256


def check_limits(
    body: RequestBody,
    items: Mapping[str, Struct],
    tools: Mapping[str, Tool],
    retry_keys: Mapping[str, str],
    limits: RequestLimits,
) -> None:
    """Refuse whatever is longer than it has any reason to be.

    Args:
        items: the input items by their place, such as "input[0]".
        tools: all tools by their place, members of namespaces included.

    Raises:
        InvalidRequestError: a bound is broken; the sentence names it, and `param` the field.
    """
    _check_form(body, "", limits)
    for name, key in retry_keys.items():
        most = IDEMPOTENCY_KEY_CHARACTERS if name == IDEMPOTENCY_KEY else limits.name_chars
        _check_size(key, most, name)
    check_metadata(body.metadata or {})
    if isinstance(body.tool_choice, dict) and isinstance(allowed := body.tool_choice.get("tools"), list):
        _check_size(allowed, limits.tools, "tool_choice.tools", param="tool_choice")
    if body.text and isinstance(text_format := body.text.format, JsonSchemaFormat):
        _check_form(text_format, "text.format", limits)
        _check_schema(text_format.schema, "text.format.schema", limits, param="text.format")
    for place, item in items.items():
        _check_form(item, place, limits)
    _check_size(list(tools), limits.tools, "tools")
    for place, tool in tools.items():
        _check_form(tool, place, limits)
        if isinstance(tool, FunctionTool) and tool.parameters is not None:
            what = f"The parameters schema of the tool '{tool.name}'"
            _check_schema(tool.parameters, what, limits, param="tools")


def check_metadata(metadata: Json) -> None:
    """Refuse metadata beyond what OpenAI's may be.

    Raises:
        InvalidRequestError: `param` is "metadata" or the value's place in it.
    """
    _check_size(metadata, METADATA_PAIRS, "metadata")
    for key, text in metadata_texts(metadata).items():
        _check_size(key, METADATA_KEY_CHARACTERS, "a key of metadata", param="metadata")
        _check_size(text, METADATA_VALUE_CHARACTERS, f"metadata.{key}", param=f"metadata.{key}")


def check_numbers(place: str, kept: Any) -> None:
    """Refuse integers that an engine's process could not be sent and other programs could not read back.

    Raises:
        InvalidRequestError: one has more than 64 bits.
    """
    try:
        msgspec.msgpack.encode(kept)
    except OverflowError:
        raise InvalidRequestError(
            f"{place} has an integer of more than 64 bits in it", param=place, code="integer_out_of_range"
        ) from None


def check_form(form: Struct, limits: RequestLimits) -> None:
    """Refuse what is longer or more than the form of a body allows.

    Raises:
        InvalidRequestError: `param` is the field.
    """
    _check_form(form, "", limits)


def _check_form(form: Struct, place: str, limits: RequestLimits) -> None:
    """Check the fields of a form against the bounds that stand beside them."""
    for name, schemas in bounds(type(form)):
        if (value := getattr(form, name)) is not None:
            for schema in schemas:
                _check_value(value, schema, f"{place}.{name}".removeprefix("."), limits)


def _check_value(value: Any, schema: Json, place: str, limits: RequestLimits) -> None:
    match value:
        case str() if "maxLength" in schema:
            _check_size(value, getattr(limits, schema["maxLength"]), place)
        case list() if "maxItems" in schema:
            _check_size(value, getattr(limits, schema["maxItems"]), place)
            if "maxLength" in (entry := schema.get("items", {})):
                for index, each in enumerate(value):
                    _check_value(each, entry, f"{place}[{index}]", limits)
        case int() if value > schema.get("maximum", value):
            raise out_of_range(place, schema)


def _check_size(given: str | list[Any] | Json, most: int, place: str, *, param: str | None = None) -> None:
    if len(given) > most:
        unit, code = _SIZES[type(given)]
        raise InvalidRequestError(
            f"{place} has {len(given)} {unit}; at most {most} are allowed",
            param=param or place.partition("[")[0],
            code=code,
        )


def _check_schema(schema: Json, what: str, limits: RequestLimits, *, param: str) -> None:
    check_schema(schema, what, most_bytes=limits.schema_bytes, most_levels=limits.schema_depth, param=param)


# ── JSON, by its bytes ────────────────────────────────────────────────────────────────────────────


def check_json(body: bytes, limits: RequestLimits) -> None:
    """Refuse JSON of too many values or levels by its bytes, before anything is made of it.

    Linear, a few milliseconds for ten megabytes. What is no JSON at all is left to the decoder.

    Raises:
        InvalidRequestError: `code` is json_too_large or json_too_deep.
    """
    # A backslash outside of a string is no JSON, so it does not matter what is taken out there.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value comes with two strings at most, its key and itself, and a string with two quotes.
    if bare.count(b'"') > 4 * limits.json_values:
        raise _too_many(limits)
    outside = b"".join(bare.split(b'"')[::2])
    brackets = outside.translate(None, _NO_BRACKETS)
    # Each value has an opening bracket or a comma before it.
    if len(brackets) > 2 * limits.json_values or outside.count(b",") + len(brackets) / 2 > limits.json_values:
        raise _too_many(limits)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > limits.json_depth:
        raise InvalidRequestError(
            f"The body's JSON has more than {limits.json_depth} levels.", code="json_too_deep"
        )


def _too_many(limits: RequestLimits) -> InvalidRequestError:
    return InvalidRequestError(
        f"The body's JSON has too many values; about {limits.json_values} are allowed.", code="json_too_large"
    )

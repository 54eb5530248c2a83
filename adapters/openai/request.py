"""From the body of `POST /v1/responses` to a `TurnRequest`, or to a refusal that names the field.

The checks run in the order of R-012 … R-023 and stop at the first failure (R-011). Fields that turnlog
does not know are ignored; those that it knows and cannot honour are refused.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from turnlog.adapters.openai.input_items import pieces
from turnlog.adapters.openai.limits import (
    METADATA_KEY_CHARACTERS,
    METADATA_PAIRS,
    METADATA_VALUE_CHARACTERS,
    RequestLimits,
    check_count,
    check_json,
    check_length,
)
from turnlog.adapters.openai.tools import read_tools
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.inputs import Piece
from turnlog.domain.messages import Message
from turnlog.domain.request import MAX_OUTPUT_TOKENS, TurnRequest
from turnlog.domain.retention import RETENTION_RANGE_S
from turnlog.domain.schemas import check_schema
from turnlog.domain.tools import read_choice

DEFAULT_LIMITS = RequestLimits()

RETRY_HEADERS = ("idempotency-key", "x-client-request-id", "x-stainless-retry-count")
"""The headers by which clients mark a request as the same one sent again."""

RANGES: dict[str, tuple[float, float]] = {
    "max_output_tokens": (1, MAX_OUTPUT_TOKENS),
    "max_tool_calls": (1, MAX_OUTPUT_TOKENS),
    "temperature": (0, 2),
    "top_p": (0, 1),
    "seed": (0, 2**64 - 1),
    "top_k": (-1, 2**31 - 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 10),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_logprobs": (0, 20),
}
"""What the numbers of a request may be, both ends included."""

INTEGERS = ("max_output_tokens", "max_tool_calls", "seed", "top_k", "top_logprobs")
"""Those of them that are whole."""

_LONGEST_REASON = 200

Json = dict[str, Any]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def decode_request(
    body: bytes, headers: Mapping[str, str], limits: RequestLimits = DEFAULT_LIMITS
) -> TurnRequest:
    """The command that the body asks for.

    Raises:
        InvalidRequestError: the body is no JSON or breaks a rule; `param` names the field.
    """
    fields = _decode_object(body, limits)
    model = _model(fields)
    given = _present_input(fields)
    max_output_tokens = _integer(fields, "max_output_tokens")
    retention_s = _retention_s(fields)
    _refuse_unsupported(fields)
    _check_lengths(fields, headers, limits)
    read, added_tools = pieces(given, limits)
    tools = read_tools(fields.get("tools"), added_tools, limits=limits)
    choice = fields.get("tool_choice")
    request = TurnRequest(
        model=model,
        input=read,
        instructions=_string_or_none(fields, "instructions"),
        previous_response_id=_previous_response_id(fields),
        stream=bool(fields.get("stream")),
        obfuscate=_options(fields, "stream_options", _StreamOptions).include_obfuscation is True,
        store=fields.get("store") is not False,
        max_output_tokens=max_output_tokens,
        temperature=_number(fields, "temperature"),
        top_p=_number(fields, "top_p"),
        seed=_integer(fields, "seed"),
        top_k=_integer(fields, "top_k") or 0,
        min_p=_number(fields, "min_p") or 0.0,
        repetition_penalty=_number(fields, "repetition_penalty") or 1.0,
        presence_penalty=_number(fields, "presence_penalty") or 0.0,
        frequency_penalty=_number(fields, "frequency_penalty") or 0.0,
        stop=_stop(fields, limits),
        top_logprobs=_top_logprobs(fields),
        tools=tools,
        tool_choice="auto" if choice is None else choice,
        choice=read_choice(choice, tools),
        parallel_tool_calls=fields.get("parallel_tool_calls") is not False,
        text=_text(fields, limits),
        reasoning=_reasoning(fields),
        truncation=_truncation(fields),
        prompt_cache_key=_string_or_none(fields, "prompt_cache_key"),
        cache_salt=_string_or_none(fields, "cache_salt"),
        safety_identifier=_string_or_none(fields, "safety_identifier"),
        max_tool_calls=_integer(fields, "max_tool_calls"),
        metadata=_metadata(fields),
        retention_s=retention_s,
        retry_keys={name: headers[name] for name in RETRY_HEADERS if name in headers},
    )
    _refuse_silence(request)
    return request


# ── the body, and what must be there ──────────────────────────────────────────────────────────────


def _decode_object(body: bytes, limits: RequestLimits) -> Json:
    check_json(body, limits)
    try:
        # Strict: NaN, Infinity and broken UTF-8 are refused.
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("The body must be a JSON object.", param="body")
    return fields


def _model(fields: Json) -> str:
    model = fields.get("model")
    if not model:
        raise InvalidRequestError("Missing required field: model", param="model", code="missing_field")
    if not isinstance(model, str):
        raise InvalidRequestError("model must be a string", param="model")
    return model


def _present_input(fields: Json) -> str | list[Any]:
    given = fields.get("input")
    if given is None:
        raise InvalidRequestError("Missing required field: input", param="input", code="missing_field")
    if not isinstance(given, str | list):
        raise InvalidRequestError("input must be a string or a list of items", param="input")
    return given


def _refuse_silence(request: TurnRequest) -> None:
    """Refuse a request that gives the model nothing to answer (D-11)."""

    def says_something(piece: Piece) -> bool:
        if not isinstance(piece, Message):
            return True
        return bool(piece.content.strip() or piece.tool_calls or piece.images or piece.role == "tool")

    if not request.previous_response_id and not any(map(says_something, request.input)):
        raise InvalidRequestError(
            "The input is empty and there is no previous response to go on from; send some text.",
            param="input",
        )


def _refuse_unsupported(fields: Json) -> None:
    """Refuse what changes the meaning of a request and is not there (yet)."""
    for name, instead in (
        ("background", "send the request without it"),
        ("conversation", "use previous_response_id"),
        ("prompt", "send instructions and input"),
    ):
        if fields.get(name):
            raise InvalidRequestError(
                f"{name} is not supported; {instead}", param=name, code="unsupported_parameter"
            )


def _check_lengths(fields: Json, headers: Mapping[str, str], limits: RequestLimits) -> None:
    """Refuse what is longer than it has any reason to be, and metadata beyond the bounds OpenAI sets."""
    for name in ("model", "previous_response_id", "prompt_cache_key", "cache_salt", "safety_identifier"):
        limits.check_name(fields.get(name), name)
    for name in RETRY_HEADERS:
        limits.check_name(headers.get(name), name)
    if instructions := _string_or_none(fields, "instructions"):
        check_length(instructions, limits.instructions_chars, "instructions")
    metadata = _metadata(fields)
    if len(metadata) > METADATA_PAIRS:
        raise InvalidRequestError(
            f"metadata has {len(metadata)} pairs; at most {METADATA_PAIRS} are allowed",
            param="metadata",
            code="object_above_max_properties",
        )
    for key, value in metadata.items():
        check_length(key, METADATA_KEY_CHARACTERS, "a key of metadata", param="metadata")
        # Others than strings were always taken; the retention is one.
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        check_length(text, METADATA_VALUE_CHARACTERS, f"metadata.{key}")
    allowed = fields.get("tool_choice")
    if isinstance(allowed, dict) and isinstance(names := allowed.get("tools"), list):
        check_count(names, limits.tools, "tool_choice.tools", param="tool_choice")


# ── fields with rules of their own ────────────────────────────────────────────────────────────────


def _retention_s(fields: Json) -> int | None:
    given = _metadata(fields).get("retention_seconds")
    if given is None:
        return None
    low, high = RETENTION_RANGE_S
    retention_s = _whole(given)
    if retention_s is None or not low <= retention_s <= high:
        # Clients parse this sentence.
        raise InvalidRequestError(
            f"metadata.retention_seconds must be an integer in [{low}, {high}]",
            param="metadata.retention_seconds",
        )
    return retention_s


def _metadata(fields: Json) -> Json:
    metadata = fields.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _previous_response_id(fields: Json) -> str | None:
    given = fields.get("previous_response_id") or None
    if given is not None and not isinstance(given, str):
        raise InvalidRequestError("previous_response_id must be a string", param="previous_response_id")
    return given


def _stop(fields: Json, limits: RequestLimits) -> tuple[str, ...]:
    given = fields.get("stop")
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InvalidRequestError("stop must be a string or a list of non-empty strings", param="stop")
    check_count(stops, limits.stops, "stop")
    for index, stop in enumerate(stops):
        check_length(stop, limits.stop_chars, f"stop[{index}]", param="stop")
    return tuple(stops)


def _top_logprobs(fields: Json) -> int | None:
    """How many likeliest tokens to tell; None unless `include` asks for log probabilities."""
    count = _integer(fields, "top_logprobs")
    include = fields.get("include")
    wanted = isinstance(include, list) and "message.output_text.logprobs" in include
    return (count or 0) if wanted else None


def _truncation(fields: Json) -> Literal["auto", "disabled"]:
    given = fields.get("truncation")
    if given not in (None, "auto", "disabled"):
        raise InvalidRequestError("truncation must be auto or disabled", param="truncation")
    return "auto" if given == "auto" else "disabled"


# ── objects, decoded by their form ────────────────────────────────────────────────────────────────


_Form = TypeVar("_Form", bound=Struct)


class _StreamOptions(Struct):
    include_obfuscation: bool | None = None


class _Reasoning(Struct):
    effort: Effort | None = None
    summary: str | None = None


class _JsonSchemaFormat(Struct, tag_field="type", tag="json_schema"):
    schema: dict[str, Any]
    name: str = "response"
    description: str | None = None
    strict: bool | None = None


class _JsonObjectFormat(Struct, tag_field="type", tag="json_object"):
    pass


class _TextFormat(Struct, tag_field="type", tag="text"):
    pass


class _Text(Struct, omit_defaults=True):
    format: _TextFormat | _JsonObjectFormat | _JsonSchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


def _options(fields: Json, name: str, form: type[_Form]) -> _Form:
    try:
        return msgspec.convert(fields.get(name) or {}, form)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        place = f"{name}{path.removesuffix('`')}"
        # It may quote the value.
        raise InvalidRequestError(f"{place}: {reason[:_LONGEST_REASON]}", param=place) from None


def _text(fields: Json, limits: RequestLimits) -> Json:
    """`text` as the response shows it, with a format (B15); empty if it was not given."""
    if not fields.get("text"):
        return {}
    text = _options(fields, "text", _Text)
    text.format = text.format or _TextFormat()
    if isinstance(text.format, _JsonSchemaFormat):
        limits.check_name(text.format.name, "text.format.name")
        check_schema(
            text.format.schema,
            "text.format.schema",
            most_bytes=limits.schema_bytes,
            most_levels=limits.schema_depth,
            param="text.format",
        )
    echo: Json = msgspec.to_builtins(text)
    return echo


def _reasoning(fields: Json) -> Json | None:
    if not fields.get("reasoning"):
        return None
    reasoning = _options(fields, "reasoning", _Reasoning)
    return {"effort": reasoning.effort, "summary": reasoning.summary}


# ── values ────────────────────────────────────────────────────────────────────────────────────────


def _string_or_none(fields: Json, name: str) -> str | None:
    given = fields.get(name)
    return given if isinstance(given, str) else None


def _whole(given: object) -> int | None:
    """The integer that `given` is by value: 5 and 5.0 are, true, "5" and 5.5 are not (R-018)."""
    if isinstance(given, bool):
        return None
    if isinstance(given, float) and given.is_integer():
        return int(given)
    return given if isinstance(given, int) else None


def _integer(fields: Json, name: str) -> int | None:
    given = fields.get(name)
    if given is None:
        return None
    whole, (low, high) = _whole(given), RANGES[name]
    if whole is None or not low <= whole <= high:
        raise InvalidRequestError(f"{name} must be an integer in [{low}, {high}]", param=name)
    return whole


def _number(fields: Json, name: str) -> float | None:
    given = fields.get(name)
    if given is None:
        return None
    low, high = RANGES[name]
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise InvalidRequestError(f"{name} must be a number in [{low}, {high}]", param=name)
    return float(given)

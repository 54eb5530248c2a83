"""From the body of `POST /v1/responses` to a `TurnRequest`, or to a refusal that names the field.

The checks run in the order of the specification's section 2 and stop at the first failure (R-011). Fields
turnlog does not know are ignored; those that it knows and cannot honour are refused.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from adapters.openai.input_items import pieces
from adapters.openai.tools import read_tools
from domain.errors import InvalidRequestError
from domain.inputs import Piece
from domain.messages import Message
from domain.request import MAX_OUTPUT_TOKENS, TurnRequest
from domain.retention import RETENTION_RANGE_S
from domain.tools import read_choice

MAX_JSON_DEPTH = 100

RETRY_HEADERS = ("idempotency-key", "x-client-request-id", "x-stainless-retry-count")
"""The headers by which clients mark a request as the same one sent again."""

_MAX_SEED = 2**64 - 1
_MAX_STOPS = 16

Json = dict[str, Any]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def decode_request(body: bytes, headers: Mapping[str, str]) -> TurnRequest:
    """The command that the body asks for.

    Raises:
        InvalidRequestError: the body is no JSON or breaks a rule; `param` names the field.
    """
    fields = _decode_object(body)
    model = _model(fields)
    given = _present_input(fields)
    max_output_tokens = _integer(fields, "max_output_tokens", 1, MAX_OUTPUT_TOKENS)
    retention_s = _retention_s(fields)
    _refuse_unsupported(fields)
    read, added_tools = pieces(given)
    tools = read_tools(fields.get("tools")) + read_tools(added_tools)
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
        temperature=_number(fields, "temperature", 0, 2),
        top_p=_number(fields, "top_p", 0, 1),
        seed=_integer(fields, "seed", 0, _MAX_SEED),
        top_k=_integer(fields, "top_k", -1, 2**31 - 1) or 0,
        min_p=_number(fields, "min_p", 0, 1) or 0.0,
        repetition_penalty=_number(fields, "repetition_penalty", 0.01, 10) or 1.0,
        presence_penalty=_number(fields, "presence_penalty", -2, 2) or 0.0,
        frequency_penalty=_number(fields, "frequency_penalty", -2, 2) or 0.0,
        stop=_stop(fields),
        top_logprobs=_top_logprobs(fields),
        tools=tools,
        tool_choice="auto" if choice is None else choice,
        choice=read_choice(choice, tools),
        parallel_tool_calls=fields.get("parallel_tool_calls") is not False,
        text=_text(fields),
        reasoning=_reasoning(fields),
        truncation=_truncation(fields),
        prompt_cache_key=_string_or_none(fields, "prompt_cache_key"),
        cache_salt=_string_or_none(fields, "cache_salt"),
        safety_identifier=_string_or_none(fields, "safety_identifier"),
        max_tool_calls=_integer(fields, "max_tool_calls", 1, MAX_OUTPUT_TOKENS),
        metadata=_metadata(fields),
        retention_s=retention_s,
        retry_keys={name: headers[name] for name in RETRY_HEADERS if name in headers},
    )
    _refuse_silence(request)
    return request


# ── the body, and what must be there ──────────────────────────────────────────────────────────────


def _decode_object(body: bytes) -> Json:
    try:
        # Strict: NaN, Infinity and broken UTF-8 are refused.
        fields = msgspec.json.decode(body)
        _check_depth(fields)
    except RecursionError:
        raise InvalidRequestError(
            f"The body's JSON is nested more than {MAX_JSON_DEPTH} deep.", code="json_too_deep"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("The body must be a JSON object.", param="body")
    return fields


def _check_depth(value: object) -> None:
    """Refuse what is deeper than `MAX_JSON_DEPTH`: it is kept, and has to be written and read again.

    Raises:
        RecursionError: as the decoder itself does for what is deeper still.
    """
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise RecursionError


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


def _stop(fields: Json) -> tuple[str, ...]:
    given = fields.get("stop")
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InvalidRequestError("stop must be a string or a list of non-empty strings", param="stop")
    if len(stops) > _MAX_STOPS:
        raise InvalidRequestError(f"stop may have at most {_MAX_STOPS} strings", param="stop")
    return tuple(stops)


def _top_logprobs(fields: Json) -> int | None:
    """How many likeliest tokens to tell; None unless `include` asks for log probabilities."""
    count = _integer(fields, "top_logprobs", 0, 20)
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
        raise InvalidRequestError(
            f"{name}{path.removesuffix('`')}: {reason}", param=f"{name}{path.removesuffix('`')}"
        ) from None


def _text(fields: Json) -> Json:
    """`text` as the response shows it, with a format (field report B15); empty if it was not given."""
    if not fields.get("text"):
        return {}
    text = _options(fields, "text", _Text)
    text.format = text.format or _TextFormat()
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


def _integer(fields: Json, name: str, low: int, high: int) -> int | None:
    given = fields.get(name)
    if given is None:
        return None
    whole = _whole(given)
    if whole is None or not low <= whole <= high:
        raise InvalidRequestError(f"{name} must be an integer in [{low}, {high}]", param=name)
    return whole


def _number(fields: Json, name: str, low: float, high: float) -> float | None:
    given = fields.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise InvalidRequestError(f"{name} must be a number in [{low}, {high}]", param=name)
    return float(given)

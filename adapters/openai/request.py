"""From the body of `POST /v1/responses` to a `TurnRequest`, or to a refusal that names the field.

The checks run in the order of the specification's section 2 and stop at the first failure (R-011). Fields
turnlog does not know are ignored.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from domain.errors import InvalidRequestError
from domain.messages import Message, Role
from domain.request import MAX_OUTPUT_TOKENS, TurnRequest
from domain.retention import RETENTION_RANGE_S

MAX_JSON_DEPTH = 100

RETRY_HEADERS = ("idempotency-key", "x-client-request-id", "x-stainless-retry-count")
"""The headers by which clients mark a request as the same one sent again."""

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXT_PARTS = {"input_text": "text", "output_text": "text", "summary_text": "text", "refusal": "refusal"}
_MAX_SEED = 2**64 - 1

Fields = dict[str, Any]


def decode_request(body: bytes, headers: Mapping[str, str]) -> TurnRequest:
    """The command that the body asks for.

    Raises:
        InvalidRequestError: the body is no JSON or breaks a rule; `param` names the field.
    """
    fields = _decode_object(body)
    model = _model(fields)
    request_input = _present_input(fields)
    max_output_tokens = _max_output_tokens(fields)
    retention_s = _retention_s(fields)
    request = TurnRequest(
        model=model,
        input=_messages(request_input),
        instructions=_string_or_none(fields, "instructions"),
        previous_response_id=_previous_response_id(fields),
        stream=bool(fields.get("stream")),
        store=fields.get("store") is not False,
        max_output_tokens=max_output_tokens,
        temperature=_number(fields, "temperature", 0, 2),
        top_p=_number(fields, "top_p", 0, 1),
        seed=_integer(fields, "seed", 0, _MAX_SEED),
        metadata=_metadata(fields),
        retention_s=retention_s,
        retry_keys={name: headers[name] for name in RETRY_HEADERS if name in headers},
    )
    if not request.previous_response_id and not any(message.content.strip() for message in request.input):
        raise InvalidRequestError(
            "The input is empty and there is no previous response to go on from; send some text.",
            param="input",
        )
    return request


def _decode_object(body: bytes) -> Fields:
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


def _model(fields: Fields) -> str:
    model = fields.get("model")
    if not model:
        raise InvalidRequestError("Missing required field: model", param="model", code="missing_field")
    if not isinstance(model, str):
        raise InvalidRequestError("model must be a string", param="model")
    return model


def _present_input(fields: Fields) -> str | list[Any]:
    given = fields.get("input")
    if given is None:
        raise InvalidRequestError("Missing required field: input", param="input", code="missing_field")
    if not isinstance(given, str | list):
        raise InvalidRequestError("input must be a string or a list of items", param="input")
    return given


def _max_output_tokens(fields: Fields) -> int | None:
    return _integer(fields, "max_output_tokens", 1, MAX_OUTPUT_TOKENS)


def _retention_s(fields: Fields) -> int | None:
    metadata = fields.get("metadata")
    given = metadata.get("retention_seconds") if isinstance(metadata, dict) else None
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


def _metadata(fields: Fields) -> dict[str, Any]:
    metadata = fields.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _previous_response_id(fields: Fields) -> str | None:
    given = fields.get("previous_response_id") or None
    if given is not None and not isinstance(given, str):
        raise InvalidRequestError("previous_response_id must be a string", param="previous_response_id")
    return given


def _string_or_none(fields: Fields, name: str) -> str | None:
    given = fields.get(name)
    return given if isinstance(given, str) else None


def _whole(given: object) -> int | None:
    """The integer that `given` is by value: 5 and 5.0 are, true, "5" and 5.5 are not (R-018)."""
    if isinstance(given, bool):
        return None
    if isinstance(given, float) and given.is_integer():
        return int(given)
    return given if isinstance(given, int) else None


def _integer(fields: Fields, name: str, low: int, high: int) -> int | None:
    given = fields.get(name)
    if given is None:
        return None
    whole = _whole(given)
    if whole is None or not low <= whole <= high:
        raise InvalidRequestError(f"{name} must be an integer in [{low}, {high}]", param=name)
    return whole


def _number(fields: Fields, name: str, low: float, high: float) -> float | None:
    given = fields.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high:
        raise InvalidRequestError(f"{name} must be a number in [{low}, {high}]", param=name)
    return float(given)


def _messages(given: str | list[Any]) -> tuple[Message, ...]:
    """The request's own messages (R-158 … R-162)."""
    if isinstance(given, str):
        return (Message("user", given),)
    return tuple(_message(item, f"input[{index}]") for index, item in enumerate(given))


def _message(item: object, at: str) -> Message:
    if not isinstance(item, dict):
        raise InvalidRequestError(f"{at} must be an object", param="input")
    kind = item.get("type", "message")
    if kind != "message":
        raise InvalidRequestError(f"{at}: items of type {kind!r} are not supported", param="input")
    role = item.get("role")
    if role not in _ROLES:
        raise InvalidRequestError(f"{at}.role must be one of {', '.join(_ROLES)}", param="input")
    return Message(_ROLES[role], _content(item.get("content"), f"{at}.content"))


def _content(content: object, at: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(f"{at} must be a string or a list of parts", param="input")
    return "".join(_part(part, f"{at}[{index}]") for index, part in enumerate(content))


def _part(part: object, at: str) -> str:
    if not isinstance(part, dict):
        raise InvalidRequestError(f"{at} must be an object", param="input")
    field = _TEXT_PARTS.get(str(part.get("type")))
    if field is None:
        raise InvalidRequestError(
            f"{at}: parts of type {part.get('type')!r} are not supported", param="input"
        )
    text = part.get(field)
    if not isinstance(text, str):
        raise InvalidRequestError(f"{at}.{field} must be a string", param="input")
    return text

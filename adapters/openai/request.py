"""From the body of `POST /v1/responses` to a `TurnRequest`, or to a refusal that names the field.

There are three steps: the JSON becomes the structs of `forms`, their limits are checked, and they become the
turn's command. The first failure is the one refused, R-012 … R-019 in their order (R-011).
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from turnlog.adapters.openai.forms import (
    AdditionalToolsItem,
    Metadata,
    RequestBody,
    TextFormat,
)
from turnlog.adapters.openai.input_items import pieces, read_items
from turnlog.adapters.openai.limits import RequestLimits, check_json, check_limits, check_numbers
from turnlog.adapters.openai.shown import named
from turnlog.adapters.openai.tools import read_tools
from turnlog.adapters.openai.typed import in_order, typed
from turnlog.adapters.retry_keys import RETRY_HEADERS
from turnlog.domain.characters import has_surrogates, whole_json
from turnlog.domain.defaults import DEFAULTABLE
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import IDEMPOTENCY_KEY, Echoed, Sampling
from turnlog.domain.ids import response_id
from turnlog.domain.inputs import ItemReference, Piece
from turnlog.domain.request import DEFAULT_SAMPLING, TurnRequest
from turnlog.domain.resent import Sent
from turnlog.domain.tools import ToolChoice, read_choice

DEFAULT_LIMITS = RequestLimits()

LOGPROBS = "message.output_text.logprobs"

Json = dict[str, Any]
Form = TypeVar("Form", bound=Struct)
Item = TypeVar("Item", bound=Struct)


def decode_request(
    body: bytes, headers: Mapping[str, str], limits: RequestLimits = DEFAULT_LIMITS
) -> TurnRequest:
    """The command that the body asks for.

    Raises:
        InvalidRequestError: the body is no JSON or breaks a rule; `param` names the field.
    """
    check_json(body, limits)
    return read_request(decoded_json(body), headers, limits)


def decode_count(
    body: bytes, headers: Mapping[str, str], limits: RequestLimits = DEFAULT_LIMITS
) -> TurnRequest:
    """The turn whose input tokens the body of `POST /v1/responses/input_tokens` wants to know.

    Raises:
        InvalidRequestError: as for `decode_request`, but `input` may be left out.
    """
    check_json(body, limits)
    given = decoded_json(body)
    return read_request({"input": [], **given} if isinstance(given, dict) else given, headers, limits)


def decoded_json(body: bytes) -> Any:
    """The JSON of a body.

    Raises:
        InvalidRequestError: it is none.
    """
    try:
        return _decoded(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None


def _decoded(body: bytes) -> Any:
    """The JSON of a body. Strict: NaN, Infinity and broken UTF-8 are refused (R-002)."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        # Agents cut texts in the midst of a surrogate pair, and send the half again with every turn (T2-10).
        text = body.decode()
        if not has_surrogates(text):
            raise
        return msgspec.json.decode(whole_json(text))


def read_request(
    given: Any, headers: Mapping[str, str], limits: RequestLimits, *, may_be_silent: bool = False
) -> TurnRequest:
    """The command that a decoded body asks for; raises as `decode_request` does.

    Args:
        may_be_silent: whether the input may be empty, because nothing is to be answered.
    """
    body = read_form(given, RequestBody)
    items = read_items(body.input)
    added = [tool for item in items.values() if isinstance(item, AdditionalToolsItem) for tool in item.tools]
    body.tools = [*(body.tools or ()), *added]
    return as_command(body, given, items, pieces, headers=headers, limits=limits, may_be_silent=may_be_silent)


def read_form(given: Any, form: type[Form]) -> Form:
    """The decoded body as a `form`.

    Raises:
        InvalidRequestError: it is no object, or a field has another type.
    """
    if not isinstance(given, dict):
        raise InvalidRequestError("The body must be a JSON object.", param="body")
    return typed(in_order(given, form), form)


def as_command(
    body: RequestBody,
    given: Json,
    items: Mapping[str, Item],
    to_pieces: Callable[[Mapping[str, Item]], tuple[Piece, ...]],
    *,
    headers: Mapping[str, str],
    limits: RequestLimits,
    may_be_silent: bool = False,
) -> TurnRequest:
    """The command of a body, whichever surface it came by.

    Args:
        given: the body as it was sent.
        items: its messages or items by their place.
        to_pieces: makes the input of them, once they are known to be within the limits.
        may_be_silent: whether the input may be empty, because nothing is to be answered.

    Raises:
        InvalidRequestError: a rule is broken; `param` names the field as the Responses API has it.
    """
    metadata = typed(body.metadata or {}, Metadata, "metadata")
    tools, tools_by_place = read_tools(body.tools or [])
    retry_keys = {name: value for name in RETRY_HEADERS if (value := headers.get(name))}
    check_limits(body, items, tools_by_place, retry_keys, limits)
    kept = {"metadata": body.metadata, "tools": tools, "tool_choice": body.tool_choice, "text": body.text}
    for place, given_there in kept.items():
        check_numbers(place, given_there)
    request = replace(
        _command(body, to_pieces(items), tools),
        retention_s=metadata.retention_seconds,
        retry_keys=retry_keys,
        body_sha256=_digest(given) if IDEMPOTENCY_KEY in retry_keys else None,
    )
    if not may_be_silent:
        _refuse_silence(request)
    if request.background and not request.store:
        raise InvalidRequestError(
            "A background turn is read from the log: it needs store: true.", param="background"
        )
    return request


def _command(body: RequestBody, pieces: tuple[Piece, ...], tools: tuple[Json, ...]) -> TurnRequest:
    """What the fields of a body ask for."""
    return TurnRequest(
        model=body.model,
        input=pieces,
        instructions=body.instructions,
        previous_response_id=body.previous_response_id and response_id(body.previous_response_id),
        stream=body.stream is True,
        obfuscate=body.stream_options is not None and body.stream_options.include_obfuscation is True,
        store=body.store is not False,
        max_output_tokens=body.max_output_tokens,
        sampling=_sampling(body),
        new_seed=body.seed is None,
        left_open=frozenset(name for name in DEFAULTABLE if getattr(body, name) is None),
        tools=tools,
        tool_choice="auto" if body.tool_choice is None else body.tool_choice,
        choice=_choice(body.tool_choice, tools),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        text=_text(body),
        reasoning=asdict(body.reasoning) if body.reasoning else None,
        truncation=body.truncation or "disabled",
        prompt_cache_key=body.prompt_cache_key,
        cache_salt=body.cache_salt,
        echoed=msgspec.convert(body, Echoed, from_attributes=True),
        metadata=body.metadata or {},
        background=body.background is True,
    )


def _choice(given: Any, tools: Sequence[Json]) -> ToolChoice:
    choice = read_choice(given, tools)
    # The log has turns from before this was refused, so replays go on to read them.
    if isinstance(given, dict) and given.get("type") not in ("function", "custom", "allowed_tools"):
        raise InvalidRequestError(
            f"tool_choice asks for {named(given.get('type'))}, a hosted tool, which cannot run here. Leave "
            "tool_choice out, or choose one of your own functions.",
            param="tool_choice",
            code="unsupported_tool",
        )
    return choice


def _digest(given: Json) -> str:
    """The same for bodies whose JSON says the same, whatever the order of its keys."""
    return sha256(msgspec.json.encode(given, order="deterministic")).hexdigest()


def _sampling(body: RequestBody) -> Sampling:
    asked: Json = {name: getattr(body, name) for name in Sampling.__struct_fields__}
    asked["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    asked["top_logprobs"] = (body.top_logprobs or 0) if LOGPROBS in (body.include or ()) else None
    # Only what was changed: the log leaves out a default by its identity, which an equal float has not.
    changed = {
        name: value
        for name, value in asked.items()
        if value is not None and value != getattr(DEFAULT_SAMPLING, name)
    }
    return replace(DEFAULT_SAMPLING, **changed)


def _text(body: RequestBody) -> Json:
    """`text` as the response shows it, with a format (B15); empty if it was not given."""
    if body.text is None:
        return {}
    text: Json = msgspec.to_builtins(replace(body.text, format=body.text.format or TextFormat()))
    return text


def _refuse_silence(request: TurnRequest) -> None:
    """Refuse a request that gives the model nothing to answer (D-11)."""

    def says_something(piece: Piece) -> bool:
        if isinstance(piece, Sent):
            piece = piece.message
        if isinstance(piece, ItemReference):
            return True
        return bool(piece.content.strip() or piece.tool_calls or piece.images or piece.role == "tool")

    if not request.previous_response_id and not any(map(says_something, request.input)):
        raise InvalidRequestError(
            "The input is empty and there is no previous response to continue.",
            param="input",
        )

"""From the body of `POST /v1/chat/completions` to the same command that `POST /v1/responses` makes."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict, replace

from turnlog.adapters.openai.chat.forms import ChatBody, NestedSchemaFormat
from turnlog.adapters.openai.chat.messages import pieces, read_messages
from turnlog.adapters.openai.forms import (
    MAX_SEED,
    JsonSchemaFormat,
    ReasoningOptions,
    RequestBody,
    TextOptions,
)
from turnlog.adapters.openai.limits import RequestLimits, check_form, check_json
from turnlog.adapters.openai.request import LOGPROBS, as_command, decoded_json, read_form
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.request import TurnRequest

Json = dict[str, Any]

_SAME = (
    "model", "metadata", "parallel_tool_calls", "stream", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "stop", "prompt_cache_key", "cache_salt",
)  # fmt: skip
"""The fields that mean the same on both surfaces."""


def decode_chat(
    body: bytes, headers: Mapping[str, str], limits: RequestLimits, *, stores: bool
) -> TurnRequest:
    """The command that the body asks for.

    Args:
        stores: whether the turn of a request that does not say so is stored.

    Raises:
        InvalidRequestError: the body is no JSON or breaks a rule; `param` names the field, which may be that
            of the Responses API.
    """
    check_json(body, limits)
    given = decoded_json(body)
    chat = read_form(given, ChatBody)
    check_form(chat, limits)
    if chat.top_logprobs is not None and not chat.logprobs:
        raise InvalidRequestError("top_logprobs requires logprobs: true", param="top_logprobs")
    messages = read_messages(chat.messages)
    common = _in_common(chat, stores=stores)
    command = as_command(common, given, messages, pieces, headers=headers, limits=limits)
    options = chat.stream_options
    with_usage = options is not None and options.include_usage is True
    return replace(command, surface="chat", with_usage=with_usage)


def _in_common(chat: ChatBody, *, stores: bool) -> RequestBody:
    """The same request as a body of the Responses API, without its input."""
    return RequestBody(
        **{name: getattr(chat, name) for name in _SAME},
        input=[],
        max_output_tokens=chat.max_completion_tokens or chat.max_tokens,
        seed=None if chat.seed is None else chat.seed & MAX_SEED,
        store=stores if chat.store is None else chat.store,
        tools=[_flat(tool) for tool in chat.tools or ()],
        tool_choice=_flat_choice(chat.tool_choice),
        top_logprobs=chat.top_logprobs,
        include=[LOGPROBS] if chat.logprobs else None,
        text=_text(chat),
        reasoning=ReasoningOptions(chat.reasoning_effort) if chat.reasoning_effort else None,
        safety_identifier=chat.safety_identifier or chat.user,
    )


def _text(chat: ChatBody) -> TextOptions | None:
    asked, verbosity = chat.response_format, chat.verbosity
    if isinstance(asked, NestedSchemaFormat):
        return TextOptions(JsonSchemaFormat(**asdict(asked.json_schema)), verbosity)
    return TextOptions(asked, verbosity) if asked or verbosity else None


def _flat(tool: Any) -> Any:
    """A tool, or its name, whose fields stand one level deeper under its type, in the flat form."""
    match tool:
        case {"type": "function" | "custom" | "allowed_tools" as kind, **rest} if isinstance(
            inner := rest.get(kind), dict
        ):
            return {**inner, "type": kind}
        case _:
            return tool


def _flat_choice(choice: Any) -> Any:
    flat = _flat(choice)
    if isinstance(flat, dict) and isinstance(allowed := flat.get("tools"), list):
        return flat | {"tools": [_flat(tool) for tool in allowed]}
    return flat

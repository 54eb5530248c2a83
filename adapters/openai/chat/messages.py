"""The messages of a chat, as pieces of a conversation."""

from collections.abc import Iterable, Mapping
from typing import Any

from turnlog.adapters.openai.chat.forms import ChatMessage, ToolCall
from turnlog.adapters.openai.forms import Part
from turnlog.adapters.openai.input_items import read_content, read_output
from turnlog.adapters.openai.typed import typed
from turnlog.domain import messages as domain
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Message
from turnlog.domain.tools import custom_arguments


def read_messages(given: Iterable[Any]) -> dict[str, ChatMessage]:
    """The messages by their place, such as "messages[0]".

    Raises:
        InvalidRequestError: one is not an object or has a field of another type; the sentence says where.
    """
    return {
        at: _read(message, at) for at, message in ((f"messages[{n}]", each) for n, each in enumerate(given))
    }


def _read(given: Any, at: str) -> ChatMessage:
    if not isinstance(given, dict):
        raise InvalidRequestError(f"{at} must be an object", param="messages")
    # With null for one that is absent, a refusal names its place.
    return typed({"role": None, **given}, ChatMessage, at)


def pieces(messages: Mapping[str, ChatMessage]) -> tuple[Message, ...]:
    """The pieces of the conversation.

    Raises:
        InvalidRequestError: a message breaks a rule of its role; the sentence names its place.
    """
    return tuple(_piece(message, at) for at, message in messages.items())


def _piece(message: ChatMessage, at: str) -> Message:
    if message.role == "tool":
        output = read_output(_parts(message.content), f"{at}.content")
        return Message("tool", output, call_id=message.tool_call_id or "")
    role = "system" if message.role == "developer" else message.role
    text, images = read_content(_parts(message.content), role, f"{at}.content")
    if role != "assistant":
        return Message(role, text, images=images)
    return Message(
        role,
        text or message.refusal or "",
        reasoning=message.reasoning_content or None,
        tool_calls=tuple(
            _call(call, f"{at}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls or ())
        ),
    )


def _parts(content: str | list[Part] | None) -> str | list[Part] | None:
    """The content in the words of the Responses API, text before images: a model reads them in that order."""
    if not isinstance(content, list):
        return content
    for part in content:
        if part.type == "image_url":
            part.type = "input_image"
            part.image_url = part.image_url.get("url") if isinstance(part.image_url, dict) else part.image_url
    return sorted(content, key=lambda part: part.type == "input_image")


def _call(call: ToolCall, at: str) -> domain.ToolCall:
    if call.type == "custom" and call.custom:
        return domain.ToolCall(call.id or "", call.custom.name, custom_arguments(call.custom.input))
    if call.type == "function" and call.function:
        return domain.ToolCall(call.id or "", call.function.name, call.function.arguments)
    raise InvalidRequestError(f"{at}.{call.type} must be an object", param="messages")

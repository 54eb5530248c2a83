"""The items of `input`, in every form clients send them, as pieces of a conversation (R-157 … R-171).

Items are decoded in two stages: the list as it is, then each item by its type, so that one unknown item
spoils nothing and an error names its place.
"""

import binascii
import logging
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from turnlog.adapters.openai.limits import RequestLimits, check_count
from turnlog.adapters.openai.shown import named, shown
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.inputs import ItemReference, Piece
from turnlog.domain.messages import Image, Message, Role, ToolCall
from turnlog.domain.tools import custom_arguments, engine_name

log = logging.getLogger("turnlog")

Json = dict[str, Any]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXT_FIELDS = {
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "text": "text",
    "refusal": "refusal",
}
_NAMES = ("type", "id", "call_id", "name", "namespace", "role")

UNSEEN_IMAGE = "[an image that the model cannot see]"
"""What stands in a tool's output for a picture: bytes are never tokenised as text (D-10)."""


_Kind = TypeVar("_Kind", bound=Struct)


class _FunctionCall(Struct):
    name: str
    call_id: str | None = None
    arguments: str = ""
    namespace: str | None = None


class _CustomCall(Struct):
    name: str
    call_id: str | None = None
    input: str = ""
    namespace: str | None = None


class _CallOutput(Struct):
    call_id: str | None = None
    output: str | list[Any] | None = None
    is_error: Any = None


class _AdditionalTools(Struct):
    tools: list[Any] = []


class _Reasoning(Struct):
    summary: list[Any] | None = None
    content: list[Any] | None = None


def pieces(given: str | list[Any], limits: RequestLimits) -> tuple[tuple[Piece, ...], list[Any]]:
    """The conversation's pieces, and the tools that `additional_tools` items bring.

    Raises:
        InvalidRequestError: an item is no object, breaks a rule or a limit; the sentence names its place.
    """
    if isinstance(given, str):
        return (Message("user", given),), []
    check_count(given, limits.input_items, "input")
    read: list[Piece] = []
    tools: list[Any] = []
    skipped: set[str] = set()
    for index, item in enumerate(given):
        if not isinstance(item, dict):
            raise InvalidRequestError(f"input[{index}] must be an object", param="input")
        for name in _NAMES:
            limits.check_name(item.get(name), f"input[{index}].{name}", param="input")
        kind = _kind(item, index)
        if kind == "additional_tools":
            tools += _convert(item, _AdditionalTools, index).tools
        elif kind in _READERS:
            read += _READERS[kind](item, index)
        elif unknown := _unknown(item):
            read.append(unknown)
        else:
            skipped.add(kind)
    for kind in shown(skipped):
        log.info("[responses] input items of type %r are skipped", kind)
    return tuple(read), tools


def _kind(item: Json, index: int) -> str:
    """An item's type; where it has none, a message, or a reference if it has only an id (R-159)."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item or "id" not in item else "item_reference"
    if not isinstance(kind, str):
        raise InvalidRequestError(f"input[{index}].type must be a string", param="input")
    return kind


def _message(item: Json, index: int) -> Iterator[Piece]:
    role, at = item.get("role"), f"input[{index}]"
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidRequestError(f"{at}.role must be one of {', '.join(_ROLES)}", param="input")
    content = item.get("content")
    if content is None and role == "assistant":
        content = ""  # Clients of chat APIs write an answer that was only calls like this.
    text, images = _content(content, f"{at}.content", images_allowed=role == "user")
    yield Message(_ROLES[role], text, images=images)


def _function_call(item: Json, index: int) -> Iterator[Piece]:
    call = _convert(item, _FunctionCall, index)
    name = engine_name(call.name, call.namespace)
    yield Message("assistant", "", tool_calls=(ToolCall(call.call_id or "", name, call.arguments),))


def _custom_call(item: Json, index: int) -> Iterator[Piece]:
    call = _convert(item, _CustomCall, index)
    name = engine_name(call.name, call.namespace)
    arguments = custom_arguments(call.input)
    yield Message("assistant", "", tool_calls=(ToolCall(call.call_id or "", name, arguments),))


def _call_output(item: Json, index: int) -> Iterator[Piece]:
    given = _convert(item, _CallOutput, index)
    text = _tool_output(given.output, f"input[{index}].output")
    yield Message("tool", text, call_id=given.call_id or "", is_error=given.is_error is True)


def _reasoning(item: Json, index: int) -> Iterator[Piece]:
    given = _convert(item, _Reasoning, index)
    texts = [
        part["text"]
        for part in (given.summary or given.content or [])
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    # One that has only encrypted content, or nothing, tells the model nothing (B5).
    if texts:
        yield Message("assistant", "", reasoning="".join(texts))


def _reference(item: Json, index: int) -> Iterator[Piece]:
    item_id = item.get("id")
    if not isinstance(item_id, str) or not item_id:
        raise InvalidRequestError(f"input[{index}].id must name an item", param="input")
    yield ItemReference(item_id, index)


_READERS: dict[str, Callable[[Json, int], Iterator[Piece]]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _call_output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _call_output,
    "reasoning": _reasoning,
    "item_reference": _reference,
}


def _unknown(item: Json) -> Message | None:
    """The text that an item of an unknown type has, under the role it names; None if it has none."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict) and _text_field(part)]
    text = "".join(each for each in texts if isinstance(each, str))
    return Message(_ROLES.get(str(item.get("role")), "user"), text) if text else None


def _convert(item: Json, kind: type[_Kind], index: int) -> _Kind:
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        place = f"input[{index}]{path.removesuffix('`')}"
        raise InvalidRequestError(f"{place}: {reason}", param="input") from None


def _content(content: object, at: str, *, images_allowed: bool) -> tuple[str, tuple[Image, ...]]:
    """A message's text and images; text comes before images (R-162 … R-164)."""
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise InvalidRequestError(f"{at} must be a string or a list of parts", param="input")
    texts: list[str] = []
    images: list[Image] = []
    for index, part in enumerate(content):
        place = f"{at}[{index}]"
        if not isinstance(part, dict):
            raise InvalidRequestError(f"{place} must be an object", param="input")
        if part.get("type") == "input_image":
            if not images_allowed:
                raise InvalidRequestError(f"{place}: only user messages may have images", param="input")
            images.append(_image(part, place))
        elif images:
            raise InvalidRequestError(f"{place}: text must stand before images", param="input")
        else:
            texts.append(_text(part, place))
    return "".join(texts), tuple(images)


def _text(part: Json, at: str) -> str:
    field = _text_field(part)
    if field is None:
        raise InvalidRequestError(
            f"{at}: parts of type {named(part.get('type'))} are not supported", param="input"
        )
    text = part.get(field)
    if not isinstance(text, str):
        raise InvalidRequestError(f"{at}.{field} must be a string", param="input")
    return text


def _text_field(part: Json) -> str | None:
    """In which field a part has its text; None if it is no text."""
    return _TEXT_FIELDS.get(str(part.get("type")))


def _image(part: Json, at: str) -> Image:
    """A picture from its data URL; nothing is ever fetched (R-163)."""
    url = part.get("image_url")
    head, _, payload = url.partition(";base64,") if isinstance(url, str) else ("", "", "")
    if not head.startswith("data:image/") or not payload:
        raise InvalidRequestError(
            f"{at}.image_url must be a data URL, data:image/…;base64,…; images are never fetched",
            param="input",
        )
    try:
        return Image(head.removeprefix("data:"), b64decode(payload, validate=True))
    except binascii.Error:
        raise InvalidRequestError(f"{at}.image_url is not valid base64", param="input") from None


def _tool_output(output: str | list[Any] | None, at: str) -> str:
    """What a tool answered, as text (D-10, R-167)."""
    if not isinstance(output, list):
        return output or ""
    texts = []
    for index, part in enumerate(output):
        if not isinstance(part, dict):
            raise InvalidRequestError(f"{at}[{index}] must be an object", param="input")
        if part.get("type") == "input_image":
            texts.append(UNSEEN_IMAGE)
        elif _text_field(part):
            texts.append(_text(part, f"{at}[{index}]"))
        else:
            texts.append(f"[a part of type {named(part.get('type'))}]")
    return "".join(texts)

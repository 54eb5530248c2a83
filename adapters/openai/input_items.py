"""The items of `input`, in every form clients send them, as pieces of a conversation (R-157 … R-171).

An item is decoded by its own type, so that one unknown item spoils nothing and an error names its place.
"""

import binascii
import logging
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from turnlog.adapters.openai.forms import (
    ITEMS,
    CustomToolCallItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    ItemReferenceItem,
    MessageItem,
    Part,
    ReasoningItem,
    UnknownItem,
)
from turnlog.adapters.openai.shown import logged, named
from turnlog.adapters.openai.typed import typed
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.inputs import ItemReference, Piece
from turnlog.domain.messages import UNSEEN_IMAGE, Image, Message, Role, ToolCall
from turnlog.domain.resent import Sent
from turnlog.domain.tools import custom_arguments, engine_name

log = logging.getLogger("turnlog")

Json = dict[str, Any]

_FORMS: dict[Any, type[Item]] = {form.__struct_config__.tag: form for form in ITEMS}
_ROLES: dict[str | None, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXT_KINDS = ("input_text", "output_text", "summary_text", "reasoning_text", "text", "refusal")


def read_items(given: str | list[Any]) -> dict[str, Item]:
    """The items by their place, such as "input[0]"; a string is a user's message.

    Raises:
        InvalidRequestError: an item is not an object or has a field of another type; the sentence says where.
    """
    if isinstance(given, str):
        return {"input": MessageItem(role="user", content=given)}
    places = (f"input[{index}]" for index in range(len(given)))
    return {place: _read(item, place) for place, item in zip(places, given, strict=True)}


def _read(given: Any, at: str) -> Item:
    if not isinstance(given, dict):
        raise InvalidRequestError(f"{at} must be an object", param="input")
    kind = given.get("type")
    if kind is None:
        # A message, or a reference if it has only an id.
        kind = "message" if "role" in given or "id" not in given else "item_reference"
    if not isinstance(kind, str):
        raise InvalidRequestError(f"{at}.type must be a string", param="input")
    # With null for those absent, a refusal names their place.
    return typed({"role": None, "id": None, **given, "type": kind}, _FORMS.get(kind, UnknownItem), at)


def pieces(items: Mapping[str, Item]) -> tuple[Piece, ...]:
    """The pieces of the conversation; items of unknown types without text are skipped and logged.

    Args:
        items: the items by their place.

    Raises:
        InvalidRequestError: the content of an item breaks a rule; the sentence names its place.
    """
    found: list[Piece] = []
    skipped: set[str] = set()
    for index, (at, item) in enumerate(items.items()):
        if isinstance(item, ItemReferenceItem):
            found.append(ItemReference(item.id, index))
        elif message := _message(item, at):
            found.append(Sent(message, item.id) if item.id else message)
        elif isinstance(item, UnknownItem):
            skipped.add(item.type)
    for kind in logged(skipped):
        log.info("[responses] skipping input items of type %s", kind)
    return tuple(found)


def _message(item: Item, at: str) -> Message | None:
    match item:
        case MessageItem():
            text, images = read_content(item.content, item.role, f"{at}.content")
            return Message(_ROLES[item.role], text, images=images)
        case FunctionCallItem() | CustomToolCallItem():
            return _call(item)
        case FunctionCallOutputItem():
            output = read_output(item.output, f"{at}.output")
            return Message("tool", output, call_id=item.call_id or "", is_error=item.is_error is True)
        case ReasoningItem():
            # One that has only encrypted content, or nothing, tells the model nothing (B5).
            texts = _texts(item.summary or item.content or [])
            return Message("assistant", "", reasoning="".join(texts)) if texts else None
        case UnknownItem():
            text = _unknown_text(item.content)
            return Message(_ROLES.get(item.role, "user"), text) if text else None
        case _:
            return None


def _texts(parts: list[Any]) -> list[str]:
    """The texts of whatever has one."""
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _unknown_text(content: Any) -> str:
    """The text that an item of an unknown type has, if any."""
    if isinstance(content, list):
        known = (part for part in content if isinstance(part, dict) and part.get("type") in _TEXT_KINDS)
        return "".join(_texts(list(known)))
    return content if isinstance(content, str) else ""


def _call(item: FunctionCallItem | CustomToolCallItem) -> Message:
    arguments = item.arguments if isinstance(item, FunctionCallItem) else custom_arguments(item.input)
    call = ToolCall(item.call_id or "", engine_name(item.name, item.namespace), arguments)
    return Message("assistant", "", tool_calls=(call,))


def read_content(content: str | list[Part] | None, role: str, at: str) -> tuple[str, tuple[Image, ...]]:
    """A message's text and images; text comes before images (R-162 … R-164).

    Raises:
        InvalidRequestError: the role admits no such part; the sentence names its place.
    """
    if content is None and role == "assistant":
        content = ""  # Clients of chat APIs write an answer that was only calls like this.
    if isinstance(content, str):
        return content, ()
    if content is None:
        raise InvalidRequestError(f"{at} must be a string or a list of parts", param="input")
    texts: list[str] = []
    images: list[Image] = []
    for index, part in enumerate(content):
        place = f"{at}[{index}]"
        if part.type == "input_image":
            if role != "user":
                raise InvalidRequestError(f"{place}: only user messages may contain images", param="input")
            images.append(_image(part, place))
        elif images:
            raise InvalidRequestError(f"{place}: text must come before images", param="input")
        else:
            texts.append(_text(part, place))
    return "".join(texts), tuple(images)


def _text(part: Part, at: str) -> str:
    if part.type not in _TEXT_KINDS:
        raise InvalidRequestError(f"{at}: parts of type {named(part.type)} are not supported", param="input")
    field = "refusal" if part.type == "refusal" else "text"
    text: str | None = getattr(part, field)
    if text is None:
        raise InvalidRequestError(f"{at}.{field} must be a string", param="input")
    return text


def _image(part: Part, at: str) -> Image:
    """A picture from its data URL; nothing is ever fetched (R-163)."""
    url = part.image_url
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


def read_output(output: str | list[Part] | None, at: str) -> str:
    """A tool's output as text (D-10, R-167)."""
    if not isinstance(output, list):
        return output or ""
    texts = []
    for index, part in enumerate(output):
        if part.type == "input_image":
            texts.append(UNSEEN_IMAGE)
        elif part.type in _TEXT_KINDS:
            texts.append(_text(part, f"{at}[{index}]"))
        else:
            texts.append(f"[a part of type {named(part.type)}]")
    return "".join(texts)

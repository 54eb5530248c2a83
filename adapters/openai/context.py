"""The context of a response as input items: what `GET /v1/responses/{id}/input_items` lists.

The log keeps what a request brought as messages, in which a run of assistant-side items is one; here each is
an item again. Its id is made from its place, so it is the same whenever it is asked for.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence, Set
from hashlib import sha256
from typing import Any

from turnlog.adapters.openai.response import item_object, summary_part, text_part
from turnlog.domain.audit.filters import Order
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import ResponseCreated
from turnlog.domain.items import CustomCallItem
from turnlog.domain.messages import Image, Message
from turnlog.domain.response import Response
from turnlog.domain.tools import Toolbox, ToolChoice, custom_input

Json = dict[str, Any]

MOST_ITEMS = 100
DEFAULT_ITEMS = 20
IMAGES = "message.input_image.image_url"


def item_page(
    context: Sequence[Response], *, after: str | None, limit: int, order: Order, include: Set[str]
) -> Json:
    """A page of the items that a response was made from.

    Args:
        context: its chain, oldest first, and itself; its own output is no part of what it was made from.
        after: the id of the last item of the page before.
        include: `IMAGES` for the bytes of pictures.

    Raises:
        InvalidRequestError: no item has the id `after`.
    """
    items = list(_items(context, with_images=IMAGES in include))
    if order == "desc":
        items.reverse()
    start = 0
    if after is not None:
        found = [index for index, item in enumerate(items) if item["id"] == after]
        if not found:
            raise InvalidRequestError(f"There is no item '{after}' in this response's input.", param="after")
        start = found[0] + 1
    page = items[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(items),
    }


def _items(context: Sequence[Response], *, with_images: bool) -> Iterator[Json]:
    custom: set[str] = set()  # the calls of custom tools so far
    for response in context:
        number = 0
        for message in response.created.input:
            for item in _of(message, response.created, custom, with_images=with_images):
                yield {"id": _id(response.id, number, item["type"])} | item
                number += 1
        if response is not context[-1]:
            custom |= {item.call_id for item in response.items if isinstance(item, CustomCallItem)}
            yield from map(item_object, response.items)


_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "function_call_output": "fco_",
    "custom_tool_call_output": "ctco_",
}


def _id(response_id: str, number: int, kind: str) -> str:
    return _PREFIXES[kind] + sha256(f"{response_id}/{number}".encode()).hexdigest()[:32]


def _of(message: Message, created: ResponseCreated, custom: set[str], *, with_images: bool) -> Iterator[Json]:
    match message.role:
        case "tool":
            kind = "custom_tool_call_output" if message.call_id in custom else "function_call_output"
            yield {"type": kind, "status": "completed", "call_id": message.call_id, "output": message.content}
        case "assistant":
            yield from _said(message, created, custom)
        case role:
            parts: list[Json] = [{"type": "input_text", "text": message.content}]
            parts += [_image_part(image, shown=with_images) for image in message.images]
            if message.images and not message.content:
                del parts[0]
            yield {"type": "message", "status": "completed", "role": role, "content": parts}


def _said(message: Message, created: ResponseCreated, custom: set[str]) -> Iterator[Json]:
    if message.reasoning:
        yield {"type": "reasoning", "summary": [summary_part(message.reasoning)]}
    if message.content or not (message.reasoning or message.tool_calls):
        content = [text_part(message.content)]
        yield {"type": "message", "status": "completed", "role": "assistant", "content": content}
    toolbox = Toolbox(created.tools, ToolChoice())
    for call in message.tool_calls:
        called = toolbox.called(call.name)
        given = {"arguments": call.arguments}
        if called.kind == "custom":
            custom.add(call.id)
            given = {"input": custom_input(call.arguments)}
        yield {
            "type": "custom_tool_call" if called.kind == "custom" else "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": called.name,
            **({"namespace": called.namespace} if called.namespace else {}),
            **given,
        }


def _image_part(image: Image, *, shown: bool) -> Json:
    url = f"data:{image.media_type};base64,{b64encode(image.content).decode()}" if shown else None
    return {"type": "input_image", "detail": "auto", "image_url": url}

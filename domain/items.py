"""What the model produced: the output items of a response, in the API's words."""

from collections.abc import Iterable, Iterator
from typing import Literal, assert_never

from msgspec import Struct

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Logprob(Struct, frozen=True, omit_defaults=True):
    """A token of the answer with its log probability and the likeliest tokens in its place.

    `raw` has the bytes of a token that is a part of a character, `top_raw` those of each in `top`; b"" and ()
    stand for tokens that are whole texts.
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    raw: bytes = b""
    top_raw: tuple[bytes, ...] = ()


class MessageItem(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="message"):
    """An answer in text: one `output_text` part, which may be empty."""

    id: str
    status: ItemStatus
    text: str
    logprobs: tuple[Logprob, ...] = ()


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """The model's reasoning before its answer, as one summary text (R-253)."""

    id: str
    text: str


class FunctionCallItem(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="function_call"):
    """A call the model wants made; `arguments` is JSON text, `call_id` pairs it with its output."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus
    namespace: str | None = None


class CustomCallItem(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="custom_tool_call"):
    """A call of a custom tool; `input` is whatever text the tool takes."""

    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus
    namespace: str | None = None


CallItem = FunctionCallItem | CustomCallItem
Item = MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem


def item_texts(items: Iterable[Item], *, call: str) -> Iterator[str]:
    """The text of each item; that of a call is `call` formatted with its name and its arguments or input."""
    for item in items:
        match item:
            case MessageItem(text=text) | ReasoningItem(text=text):
                yield text
            case FunctionCallItem(name=name, arguments=given) | CustomCallItem(name=name, input=given):
                yield call.format(name, given)
            case _:
                assert_never(item)

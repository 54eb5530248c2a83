"""What the model produced: the output items of a response, in the API's words."""

from typing import Literal

from msgspec import Struct

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Logprob(Struct, frozen=True):
    """A token of the answer with its log probability and the likeliest tokens in its place."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class MessageItem(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="message"):
    """An answer in text: one `output_text` part, which may be empty."""

    id: str
    status: ItemStatus
    text: str
    logprobs: tuple[Logprob, ...] = ()


class ReasoningItem(Struct, frozen=True, tag_field="type", tag="reasoning"):
    """What the model thought before it answered, told as one summary text (R-253)."""

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

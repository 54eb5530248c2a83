"""What the model reads: the messages of a conversation, free of any wire format or template."""

from typing import Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]

UNSEEN_IMAGE = "[an image that the model cannot see]"
"""The text that replaces a picture for a text-only model."""


class Image(Struct, frozen=True):
    """A picture in a message, as its bytes; never fetched from anywhere."""

    media_type: str
    content: bytes


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A call the assistant made. `name` is the engine's (domain.tools), `arguments` JSON text as written."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, omit_defaults=True):
    """One message. A tool message answers the call `call_id`, with an error if `is_error` (R-168)."""

    role: Role
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    is_error: bool = False
    images: tuple[Image, ...] = ()

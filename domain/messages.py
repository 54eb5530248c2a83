"""What the model reads: the messages of a conversation, free of any wire format or template."""

from typing import Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A call the assistant made; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, omit_defaults=True):
    """One message. `call_id` names the call that a tool message answers."""

    role: Role
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None

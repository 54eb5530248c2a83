"""What a client asks for, normalised: the command from which a turn is made."""

from typing import Any

from msgspec import Struct

from domain.messages import Message

DEFAULT_TEMPERATURE = 1.0
DEFAULT_TOP_P = 1.0
MAX_OUTPUT_TOKENS = 2**31 - 1
"""The most output tokens a request may ask for (R-017)."""

ENGINE_OUTPUT_TOKENS = 2048
"""Output tokens of a turn whose request names no limit (R-237)."""


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A valid request for one turn.

    `input` is the request's own messages; `instructions` None means inherited (R-149); fields that are
    None were not given.
    """

    model: str
    input: tuple[Message, ...]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    store: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    metadata: dict[str, Any] = {}
    retention_s: int | None = None
    retry_keys: dict[str, str] = {}

"""What a client asks for, normalised: the command from which a turn is made."""

from typing import Any, Literal

from msgspec import Struct

from turnlog.domain.inputs import Piece
from turnlog.domain.ports import JsonGuide
from turnlog.domain.tools import ToolChoice

DEFAULT_TEMPERATURE = 1.0
DEFAULT_TOP_P = 1.0
MAX_OUTPUT_TOKENS = 2**31 - 1
"""The most output tokens a request may ask for (R-017)."""

ENGINE_OUTPUT_TOKENS = 2048
"""Output tokens of a turn whose request names no limit (R-237)."""


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A valid request for one turn.

    `input` is the request's own items; `instructions` None means inherited (R-149); `tools`, `text` and
    `reasoning` are as the client sent them, `choice` is the `tool_choice` understood. `replay_of` is the
    response that is run again. Fields that are None were not given.
    """

    model: str
    input: tuple[Piece, ...]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    obfuscate: bool = False
    store: bool = True
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Any = "auto"
    choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    text: dict[str, Any] = {}
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    safety_identifier: str | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, Any] = {}
    retention_s: int | None = None
    retry_keys: dict[str, str] = {}
    replay_of: str | None = None

    @property
    def thinking(self) -> bool | None:
        """Whether the model shall think first; None leaves it to its template (R-239)."""
        effort = (self.reasoning or {}).get("effort")
        return None if effort is None else effort not in ("none", "minimal", "low")

    @property
    def json_format(self) -> JsonGuide | None:
        """What the answer's JSON must be, if the request asks for JSON."""
        match self.text.get("format"):
            case {"type": "json_schema", "schema": dict() as schema}:
                return JsonGuide(schema)
            case {"type": "json_object"}:
                return JsonGuide(None)
            case _:
                return None

"""What a client asks for, normalised: the command from which a turn is made."""

from typing import Any, Literal

from msgspec import Struct

from turnlog.domain.events import IDEMPOTENCY_KEY, Echoed, Sampling
from turnlog.domain.inputs import Piece
from turnlog.domain.ports import JsonGuide
from turnlog.domain.tools import ToolChoice

DEFAULT_SAMPLING = Sampling(temperature=1.0, top_p=1.0, seed=0)
"""The sampling of a request that leaves it open; the seed is drawn when the turn is accepted."""

MAX_OUTPUT_TOKENS = 2**31 - 1
"""The most output tokens a request may ask for (R-017)."""

ENGINE_OUTPUT_TOKENS = 2048
"""Output tokens of a turn whose request names no limit (R-237)."""


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A valid request for one turn.

    `input` is the request's own items; `instructions` None means inherited (R-149); `tools`, `text` and
    `reasoning` are as the client sent them, `choice` is the `tool_choice` understood. `replay_of` is the
    response that is run again. `body_sha256` is the digest of the body, whatever the order of its keys, if an
    idempotency key came with it. With `new_seed` one is drawn in place of the seed in `sampling`. Fields that
    are None were not given.
    """

    model: str
    input: tuple[Piece, ...]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    obfuscate: bool = False
    store: bool = True
    max_output_tokens: int | None = None
    sampling: Sampling = DEFAULT_SAMPLING
    new_seed: bool = True
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Any = "auto"
    choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    text: dict[str, Any] = {}
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    echoed: Echoed = Echoed()
    metadata: dict[str, Any] = {}
    retention_s: int | None = None
    retry_keys: dict[str, str] = {}
    body_sha256: str | None = None
    replay_of: str | None = None

    @property
    def idempotency_key(self) -> str | None:
        """The key under which requests are one turn, if there is one."""
        return self.retry_keys.get(IDEMPOTENCY_KEY)

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

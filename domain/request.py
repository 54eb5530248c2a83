"""What a client asks for, normalised: the command from which a turn is made."""

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from turnlog.domain.defaults import DEFAULTABLE, ModelDefaults
from turnlog.domain.events import IDEMPOTENCY_KEY, Echoed, Sampling, Surface
from turnlog.domain.inputs import Piece
from turnlog.domain.ports import JsonConstraint
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
    response that is run again; a `background` turn is not tied to its client. `is_new` says that the input
    repeats nothing of the chain that it continues (D-39). `body_sha256` is the digest of the body, whatever
    the order of its keys, if an idempotency key came with it. With `new_seed` one is drawn in place of the
    seed in `sampling`. Fields that are `left_open` take the model's defaults, and are `defaulted` then; those
    that are None were not given. Without `generate` the prompt is read and nothing is said. `steers` are the
    steering submissions that the input begins with. `surface` is the API that it came by, `with_usage`
    whether a chat's stream shall end with its usage.
    """

    model: str
    input: tuple[Piece, ...]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    obfuscate: bool = False
    with_usage: bool = False
    store: bool = True
    max_output_tokens: int | None = None
    sampling: Sampling = DEFAULT_SAMPLING
    new_seed: bool = True
    left_open: frozenset[str] = DEFAULTABLE
    defaulted: tuple[str, ...] = ()
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
    background: bool = False
    generate: bool = True
    steers: tuple[str, ...] = ()
    is_new: bool = False
    surface: Surface = "responses"

    def with_defaults(self, defaults: ModelDefaults) -> "TurnRequest":
        """The same request with the defaults for what it leaves open (R-103, R-177)."""
        values = {name: value for name, value in defaults.given().items() if name in self.left_open}
        # Only what is changed: the log leaves out a default by its identity, which an equal float has not.
        changed = {
            name: value
            for name, value in values.items()
            if name != "max_output_tokens" and value != getattr(self.sampling, name)
        }
        return replace(
            self,
            sampling=replace(self.sampling, **changed),
            max_output_tokens=values.get("max_output_tokens", self.max_output_tokens),
            left_open=self.left_open - values.keys(),
            defaulted=(*self.defaulted, *values),
        )

    @property
    def idempotency_key(self) -> str | None:
        """The key under which requests are one turn, if there is one."""
        return self.retry_keys.get(IDEMPOTENCY_KEY)

    @property
    def effort(self) -> str | None:
        """How much the model shall think first; None leaves it to its template."""
        return (self.reasoning or {}).get("effort")

    @property
    def json_format(self) -> JsonConstraint | None:
        """What the answer's JSON must be, if the request asks for JSON."""
        match self.text.get("format"):
            case {"type": "json_schema", "schema": dict() as schema}:
                return JsonConstraint(schema)
            case {"type": "json_object"}:
                return JsonConstraint(None)
            case _:
                return None

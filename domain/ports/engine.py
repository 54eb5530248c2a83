"""The engine port: what makes tokens."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol

from msgspec import Struct

from turnlog.domain.events import Sampling
from turnlog.domain.items import Logprob
from turnlog.domain.messages import Message
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool
from turnlog.domain.usage import Timing

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The reasoning efforts of the API, rising."""

FinishReason = Literal["stop", "length", "tool_calls", "error"]


class EngineInfo(Struct, frozen=True):
    """The fixed properties of a loaded engine.

    `context_window_tokens` is None when the engine does not know it (then nothing is checked, R-238);
    `concurrency` is how many turns it runs at once, 1 = one after the other (R-079). A fingerprint
    changes when, and only when, the weights or the tokenizer do. `weight_bytes` is the memory that the
    loaded model takes, `kv_bytes_per_token` what one token of a running turn adds; 0 is "next to nothing".
    """

    model_fingerprint: str
    tokenizer_fingerprint: str
    context_window_tokens: int | None
    concurrency: int
    reads_images: bool = False
    weight_bytes: int = 0
    kv_bytes_per_token: int = 0


class Prompt(Struct, frozen=True):
    """A rendered conversation: token ids in the order the model reads them.

    `effort` is the reasoning effort that it asks for; None if that has no place in it. An engine may return a
    subclass that carries more for its own use.
    """

    ids: TokenIds
    effort: str | None = None


class CacheHandle(Protocol):
    """An engine's KV cache of a sequence. Opaque: only the engine that made it looks inside."""


class TextChunk(Struct, frozen=True):
    """Part of the answer as generated; never empty. `logprobs` are those of its tokens, if requested."""

    text: str
    logprobs: tuple[Logprob, ...] = ()


class ReasoningChunk(Struct, frozen=True):
    """Part of the model's reasoning; never empty."""

    text: str


class EngineCall(Struct, frozen=True):
    """A tool call found in the answer, `arguments` as JSON text.

    Only calls whose `status` is "ok" reach the client; any other status names the problem.
    """

    name: str
    arguments: str
    id: str | None = None
    status: str = "ok"


class TurnStats(Struct, frozen=True, kw_only=True):
    """Token counts and timing of a turn.

    `output_ids` are all sampled ids; `unbatched` is true if no other turn ever shared the batch.
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int = 0
    timing: Timing = Timing()
    output_ids: TokenIds | None = None
    unbatched: bool | None = None


class End(TurnStats, frozen=True, kw_only=True):
    """The engine has finished a turn. `text` and `thinking` are authoritative over the chunks.

    `cache` covers prompt and answer; the receiver owns it and must `drop` it.
    """

    finish_reason: FinishReason
    text: str
    thinking: str | None = None
    tool_calls: tuple[EngineCall, ...] = ()
    cache: CacheHandle | None = None


class EngineFailed(Struct, frozen=True):
    """An exception in the engine ended the turn. `stats` are those up to then, if known.

    `constraint_lost` says that the request is to blame: its constraint could not be followed any further.
    """

    message: str
    stats: TurnStats | None = None
    constraint_lost: bool = False


class EngineCrashed(Struct, frozen=True):
    """The engine crashed, ending every turn it was running. It accepts no further turns."""

    message: str


class Exhausted(Struct, frozen=True):
    """The engine's stream stopped without an end; the turn is over (R-318)."""


class Cancelled(Struct, frozen=True):
    """The turn was cancelled and is over.

    `cache` covers the tokens read so far, if worth keeping; `stats` are those up to then, if known.
    """

    cache: CacheHandle | None = None
    stats: TurnStats | None = None


EngineChunk = TextChunk | ReasoningChunk
EngineFinal = End | EngineFailed | EngineCrashed | Exhausted | Cancelled
EngineOutput = EngineChunk | EngineFinal

Deliver = Callable[[EngineOutput], None]
"""Takes a turn's outputs in order, the last an `EngineFinal`. Called on an engine's thread; never blocks."""


class JsonConstraint(Struct, frozen=True):
    """The answer must be JSON: any object if `schema` is None, else what the schema describes.

    With `tools` it may be a call of one of them instead, or several calls if `many`.
    """

    schema: dict[str, Any] | None
    tools: tuple[Tool, ...] = ()
    many: bool = True


class CallConstraint(Struct, frozen=True):
    """The answer must be a call of one of `tools`, or several calls if `many`."""

    tools: tuple[Tool, ...]
    many: bool


Constraint = JsonConstraint | CallConstraint


class CompiledConstraint(Protocol):
    """A constraint made ready for use. Opaque: only the engine that compiled it looks inside."""


class Crash(Struct, frozen=True):
    """How an engine crashed.

    `last_words` is the end of what its process wrote to its error stream, for the server's log only.
    `lone_prompt` is the digest (`tokens.digest`) of the prompt of the only turn it was running, if there was
    exactly one.
    """

    reason: str
    last_words: str = ""
    lone_prompt: str | None = None


class Vitals(Struct, frozen=True):
    """An engine's process and memory now. `process_id` is None for an engine in this process.

    `memory_bytes` is all the memory of its processes, 0 if unknown; it excludes memory that
    `release_memory` would free.
    """

    process_id: int | None = None
    memory_bytes: int = 0


class Submission(Struct, frozen=True, kw_only=True):
    """A turn for the engine. The prefix that `warm` shares with the prompt is not computed again.

    `tools` are those the prompt was rendered with; without any, the engine looks for no calls.
    """

    turn_id: str
    prompt: Prompt
    sampling: Sampling
    output_budget_tokens: int
    warm: CacheHandle | None = None
    constraint: CompiledConstraint | None = None
    tools: tuple[Tool, ...] = ()


class InferenceEngine(Protocol):
    """Generates tokens. Keeps no conversation and decides nothing about caches: that is policy (app).

    A crashed engine never recovers: it answers every `submit` with `EngineCrashed`. Whether its model is
    loaded again is policy too.
    """

    @property
    def info(self) -> EngineInfo:
        """The fixed properties of this engine."""

    @property
    def crashed(self) -> Future[Crash]:
        """Resolved when the engine crashes, before its turns get `EngineCrashed`; never by `close`."""

    def vitals(self) -> Vitals:
        """The engine's process and memory now. Any thread; returns at once."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
        most_tokens: int | None = None,
    ) -> Prompt:
        """The conversation as token ids, ready for the model to answer. Any thread; may take a while.

        Args:
            tools: what the model may call.
            effort: how much the model shall think first, one of `EFFORTS`; None leaves it to the template.
            recorded: the ids the model itself produced for the assistant message at an index. They are
                used in place of its text, where the template allows it, so that a prompt extends what
                the model has already read.

        Raises:
            InvalidRequestError: the model's template refuses the conversation.
            TemplateTimeoutError: rendering took more time or memory than it may.
        """

    def decode_tokens(self, ids: TokenIds) -> tuple[str, ...]:
        """The text of each token id on its own, for people to read. Any thread."""

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Make a constraint ready for any number of turns. Any thread; may take a while.

        Raises:
            InvalidRequestError: the schema is not supported; the message says why, `param` is not set.
            SchemaTooComplexError: compiling took more time or memory than it may.
        """

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        """Start a turn and return at once. Every output, failures included, goes to `deliver`."""

    def cancel(self, turn_id: str) -> None:
        """End a turn at the next safe point; its last output is then `Cancelled`. Unknown ids are ignored."""

    def ping(self) -> Future[None]:
        """Liveness check: resolves at once while the engine makes progress from step to step.

        The future fails if one step takes suspiciously long, and stays pending if nothing answers.
        """

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        """How many tokens at the start of `prompt` the handle saves the engine from computing."""

    def size_bytes(self, handle: CacheHandle) -> int:
        """Memory the handle holds."""

    def drop(self, handle: CacheHandle) -> None:
        """Free the handle's memory. Drop a handle once, and do not use it afterwards."""

    def release_memory(self) -> None:
        """Return freed memory that is held for reuse to the system. Returns at once."""

    def abort(self, reason: str) -> None:
        """End the engine as if it had crashed, for `reason`; no effect once it has ended."""

    def close(self) -> None:
        """End running turns as cancelled, free the model and stop the engine's threads."""

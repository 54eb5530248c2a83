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
    """What is fixed about an engine from the moment it serves.

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
    """What an engine knows of a sequence it has read. Opaque: only the engine that made it looks inside."""


class TextChunk(Struct, frozen=True):
    """Some of the answer, as the model said it; never empty. `logprobs` of its tokens, if asked for."""

    text: str
    logprobs: tuple[Logprob, ...] = ()


class ReasoningChunk(Struct, frozen=True):
    """Some of the model's thinking; never empty."""

    text: str


class EngineCall(Struct, frozen=True):
    """A tool call found in the answer, `arguments` as JSON text.

    Only those whose `status` is "ok" are offered to the client; another status says what is wrong.
    """

    name: str
    arguments: str
    id: str | None = None
    status: str = "ok"


class TurnStats(Struct, frozen=True, kw_only=True):
    """What an engine has read and written for a turn, and in what time.

    `output_ids` are all sampled ids, `alone` says whether the turn was computed without others beside it.
    """

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int = 0
    timing: Timing = Timing()
    output_ids: TokenIds | None = None
    alone: bool | None = None


class End(TurnStats, frozen=True, kw_only=True):
    """The engine is done with a turn. `text` and `thinking` are authoritative over the chunks.

    `cache` is what the engine now knows of prompt and answer; whoever takes it must `drop` it.
    """

    finish_reason: FinishReason
    text: str
    thinking: str | None = None
    tool_calls: tuple[EngineCall, ...] = ()
    cache: CacheHandle | None = None


class EngineFailed(Struct, frozen=True):
    """Something raised in the engine; the turn is over. `stats` is what it had come to, if that is known."""

    message: str
    stats: TurnStats | None = None


class EngineCrashed(Struct, frozen=True):
    """The engine ended by itself, and with it every turn it was running. It takes no further turns."""

    message: str


class Exhausted(Struct, frozen=True):
    """The engine's stream stopped without an end; the turn is over (R-318)."""


class Cancelled(Struct, frozen=True):
    """The turn was cancelled and is over.

    `cache` is what had been read so far, if it is worth keeping; `stats` what the turn had come to, if known.
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
    """How an engine ended by itself.

    `last_words` is the end of what its process wrote to its error stream, for the server's log only.
    `lone_prompt` is the digest (`tokens.digest`) of the prompt of the only turn it was running, if there was
    exactly one.
    """

    reason: str
    last_words: str = ""
    lone_prompt: str | None = None


class Vitals(Struct, frozen=True):
    """What an engine holds at the moment. `process_id` is None for an engine in this process.

    `memory_bytes` is all the memory of its processes, 0 if that is not known; memory that `release_memory`
    would give back does not count.
    """

    process_id: int | None = None
    memory_bytes: int = 0


class Submission(Struct, frozen=True, kw_only=True):
    """A turn for the engine. What `warm` and the prompt have in common at their start is not read again.

    `tools` are those the prompt was rendered with: calls are looked for only if there are any.
    """

    turn_id: str
    prompt: Prompt
    sampling: Sampling
    output_budget_tokens: int
    warm: CacheHandle | None = None
    constraint: CompiledConstraint | None = None
    tools: tuple[Tool, ...] = ()


class InferenceEngine(Protocol):
    """Makes tokens. Keeps no conversation and decides nothing about caches: that is policy (app).

    An engine lives once. One that has crashed answers every `submit` with `EngineCrashed`; whether its model
    is loaded again is policy too.
    """

    @property
    def info(self) -> EngineInfo:
        """What is fixed about this engine."""

    @property
    def crashed(self) -> Future[Crash]:
        """Resolved when the engine ends by itself, before its turns are told; never by `close`."""

    def vitals(self) -> Vitals:
        """What the engine holds at the moment. Any thread; returns at once."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
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
        """What each token id says on its own, for people. Any thread."""

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Make a constraint ready for any number of turns. Any thread; may take a while.

        Raises:
            InvalidRequestError: the schema cannot be followed; the sentence says why, `param` is left open.
            SchemaTooComplexError: compiling took more time or memory than it may.
        """

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        """Start a turn and return at once. Every output, failures included, goes to `deliver`."""

    def cancel(self, turn_id: str) -> None:
        """End a turn at the next safe point; its last output is then `Cancelled`. Unknown ids are ignored."""

    def ping(self) -> Future[None]:
        """A sign of life: resolved at once while the engine goes on from step to step.

        It fails if one step takes suspiciously long, and stays open if nothing answers.
        """

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        """How many tokens at the beginning of `prompt` the handle spares the engine."""

    def size_bytes(self, handle: CacheHandle) -> int:
        """Memory the handle holds."""

    def drop(self, handle: CacheHandle) -> None:
        """Give the handle's memory back. A handle is dropped once, and not used afterwards."""

    def release_memory(self) -> None:
        """Give memory that was freed but is still held for later use back to the system. Returns at once."""

    def abort(self, reason: str) -> None:
        """End the engine as a crash, for `reason`; without effect once it has ended."""

    def close(self) -> None:
        """End running turns as cancelled, free the model and stop the engine's threads."""

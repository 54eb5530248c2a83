"""What the domain needs of the world: an engine that makes tokens, a log that keeps events, time and ids.

Synchronous on purpose: what takes time answers by a `Future` or by a callback, and each adapter says
which thread it answers on.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future
from typing import Any, Literal, Protocol

from msgspec import Struct

from domain.events import Outcome, Recorded, ResponseEvent, Sampling
from domain.ids import IdKind
from domain.items import Item, Logprob
from domain.messages import Message
from domain.tokens import TokenIds
from domain.tools import Tool
from domain.usage import Timing

# ── the engine ────────────────────────────────────────────────────────────────────────────────────

FinishReason = Literal["stop", "length", "tool_calls", "error"]


class EngineInfo(Struct, frozen=True):
    """What is fixed about an engine from the moment it serves.

    `context_window_tokens` is None when the engine does not know it (then nothing is checked, R-238);
    `concurrency` is how many turns it runs at once, 1 = one after the other (R-079). A fingerprint
    changes when, and only when, the weights or the tokenizer do.
    """

    model_fingerprint: str
    tokenizer_fingerprint: str
    context_window_tokens: int | None
    concurrency: int
    reads_images: bool = False


class Prompt(Struct, frozen=True):
    """A rendered conversation: token ids in the order the model reads them.

    An engine may return a subclass that carries more for its own use.
    """

    ids: TokenIds


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


class End(Struct, frozen=True, kw_only=True):
    """The engine is done with a turn. `text` and `thinking` are authoritative over the chunks.

    `cache` is what the engine now knows of prompt and answer; whoever takes it must `drop` it.
    """

    finish_reason: FinishReason
    text: str
    prompt_tokens: int
    output_tokens: int
    thinking: str | None = None
    tool_calls: tuple[EngineCall, ...] = ()
    cached_tokens: int | None = None
    reasoning_tokens: int = 0
    timing: Timing = Timing()
    output_ids: TokenIds | None = None
    alone: bool | None = None
    cache: CacheHandle | None = None


class EngineFailed(Struct, frozen=True):
    """Something raised in the engine; the turn is over."""

    message: str


class Exhausted(Struct, frozen=True):
    """The engine's stream stopped without an end; the turn is over (R-318)."""


class Cancelled(Struct, frozen=True):
    """The turn was cancelled and is over. `cache` is what had been read so far, if it is worth keeping."""

    cache: CacheHandle | None = None


EngineChunk = TextChunk | ReasoningChunk
EngineFinal = End | EngineFailed | Exhausted | Cancelled
EngineOutput = EngineChunk | EngineFinal

Deliver = Callable[[EngineOutput], None]
"""Takes a turn's outputs in order, the last an `EngineFinal`. Called on an engine's thread; never blocks."""


class JsonGuide(Struct, frozen=True):
    """The answer must be JSON: any object if `schema` is None, else what the schema describes.

    With `tools` it may be a call of one of them instead, or several calls if `many`.
    """

    schema: dict[str, Any] | None
    tools: tuple[Tool, ...] = ()
    many: bool = True


class CallGuide(Struct, frozen=True):
    """The answer must be a call of one of `tools`, or several calls if `many`."""

    tools: tuple[Tool, ...]
    many: bool


Guide = JsonGuide | CallGuide


class CompiledGuide(Protocol):
    """A guide made ready for use. Opaque: only the engine that compiled it looks inside."""


class Submission(Struct, frozen=True, kw_only=True):
    """A turn for the engine. What `warm` and the prompt have in common at their start is not read again.

    `tools` are those the prompt was rendered with: calls are looked for only if there are any.
    """

    turn_id: str
    prompt: Prompt
    sampling: Sampling
    output_budget_tokens: int
    warm: CacheHandle | None = None
    guide: CompiledGuide | None = None
    tools: tuple[Tool, ...] = ()


class InferenceEngine(Protocol):
    """Makes tokens. Keeps no conversation and decides nothing about caches: that is policy (app)."""

    @property
    def info(self) -> EngineInfo:
        """What is fixed about this engine."""

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        thinking: bool | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
    ) -> Prompt:
        """The conversation as token ids, ready for the model to answer. Any thread; may take a while.

        Args:
            tools: what the model may call.
            thinking: whether the model shall think before it answers; None leaves it to the template.
            recorded: the ids the model itself produced for the assistant message at an index. They are
                used in place of its text, where the template allows it, so that a prompt extends what
                the model has already read.

        Raises:
            InvalidRequestError: the model's template refuses the conversation.
        """

    def compile(self, guide: Guide) -> CompiledGuide:
        """Make a guide ready for any number of turns. Any thread; may take a while.

        Raises:
            InvalidRequestError: the schema cannot be followed; the sentence says why, `param` is left open.
        """

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        """Start a turn and return at once. Every output, failures included, goes to `deliver`."""

    def cancel(self, turn_id: str) -> None:
        """End a turn at the next safe point; its last output is then `Cancelled`. Unknown ids are ignored."""

    def ping(self) -> Future[None]:
        """Resolved by the engine's thread between two of its steps: a sign of life."""

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        """How many tokens at the beginning of `prompt` the handle spares the engine."""

    def size_bytes(self, handle: CacheHandle) -> int:
        """Memory the handle holds."""

    def drop(self, handle: CacheHandle) -> None:
        """Give the handle's memory back. A handle is dropped once, and not used afterwards."""

    def close(self) -> None:
        """End running turns as cancelled, free the model and stop the engine's threads."""


# ── the log ───────────────────────────────────────────────────────────────────────────────────────


class ResponseRow(Struct, frozen=True, kw_only=True):
    """What a list shows of a response: its row in the read model, written with the events it comes from.

    `status` is the lifecycle's; `outcome` is how a turn that stands ended, `reason` why one failed.
    `expired` is whether its content was removed (D-14).
    """

    response_id: str
    previous_response_id: str | None
    owner: str
    model: str
    status: str
    outcome: Outcome | None
    reason: str | None
    created_ms: int
    expires_at: int
    last_version: int
    expired: bool = False


class EventJournal(Protocol):
    """Takes events for the store, in order, without making the caller wait."""

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Store all of `events` or none; resolved once they are durable.

        A store that is locked or gives no clear answer is asked until the append has settled, however long
        that takes; what was appended later waits behind it. The future fails with

        - `StorageConflictError`: a version is not the one after the last of its response;
        - `StorageRefusedError`: the store is full, read-only or corrupt;
        - `StorageError`: the events cannot be stored at all, or the journal was closed.

        Then nothing of the append is stored, and what is appended to its responses after it fails for
        the same reason. An append that begins where the failed one began, or before, is a new try.
        """

    def close(self) -> None:
        """Write what is queued, as far as the store takes it in time, then stop."""


class JournalLoad(Protocol):
    """How far a journal is behind with its writes. Any thread; never waits."""

    @property
    def accepts_new(self) -> bool:
        """Whether new turns may begin; an append of a running one is taken all the same."""

    @property
    def queued_bytes(self) -> int:
        """How much memory the appends that have not settled take, roughly."""

    def oldest_queued_s(self) -> float:
        """How long the oldest of them has waited; 0 when there is none."""


class ContentExpirer(Protocol):
    """Removes the content of responses whose time is over (D-14)."""

    def expire(self, now_s: int, *, spare: Set[str] = frozenset(), limit: int = ...) -> Future[int]:
        """Take one small step and return how many events it went through; 0 when there is nothing left.

        A response that expired before `now_s` and has ended gets a `ContentExpired`, and its events lose
        their content but keep their places. Call it again until it returns 0.

        Args:
            spare: responses to leave alone, because more events of theirs will be appended.
            limit: how many events one step may go through.
        """


class EventReader(Protocol):
    """Reads the log on threads of its own, never waiting for a writer. Futures fail with `StorageError`."""

    def events(self, response_id: str) -> Future[list[Recorded]]:
        """All events of a response in order; empty if there is no such response."""

    def chain(self, response_id: str, *, limit: int) -> Future[list[list[Recorded]]]:
        """The events of a response and its ancestors, oldest response first, in one query, without deltas.

        A chain ends before the first ancestor that is not there or whose content was removed: the oldest
        response returned then names it as its `previous_response_id`. At most `limit` + 1 responses are read.
        """

    def items(self, item_ids: Set[str], *, now_s: int) -> Future[dict[str, Item]]:
        """The output items of those ids, of responses that have not expired; unknown ids are left out."""

    def rows(self, *, status: str | None = None, limit: int = 20) -> Future[list[ResponseRow]]:
        """The newest responses first; with `status`, those in that state, or with that outcome or reason."""

    def unfinished(self) -> Future[list[str]]:
        """The ids of the responses that have neither been committed nor failed, oldest first."""

    def ping(self) -> Future[None]:
        """Resolved once the store has answered."""

    def same_file(self) -> bool:
        """Whether the store's file is still the one that was opened.

        A file that was deleted or replaced goes on taking writes that nobody will ever read.
        """

    def close(self) -> None:
        """Stop the reader threads."""


# ── the models ────────────────────────────────────────────────────────────────────────────────────


class Retains(Protocol):
    """Keeps a model's instance id alive while writes that carry it are under way (R-069 … R-076).

    Known by the id alone, so that a wedged write keeps no model in memory. No call fails: what concerns an
    id that is gone is ignored.
    """

    def retain(self, instance_id: int) -> None:
        """One more write carries the id; it stays the model's until as many were released."""

    def release(self, instance_id: int) -> None:
        """One of the writes does not need the id any more; the model may lose it."""

    def retire(self, instance_id: int) -> bool:
        """Let the same model inherit the id when it is registered again, until `unretire` is called.

        Returns:
            Whether a model has the id now; if not, nothing was retired and nothing is to be undone.
        """

    def unretire(self, instance_id: int) -> None:
        """One of the writes for which the id was retired has settled."""


# ── the wire ──────────────────────────────────────────────────────────────────────────────────────


class Framer(Protocol):
    """Tells one response's events as the frames of its stream: a pure function of the events so far."""

    @property
    def closed(self) -> bool:
        """Whether the last frame has been told."""

    def receive(self, event: ResponseEvent) -> list[bytes]:
        """Frames that follow from `event`, in order; possibly none."""


# ── time and chance ───────────────────────────────────────────────────────────────────────────────


class Clock(Protocol):
    """The time, as the domain wants it told."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""


class IdSource(Protocol):
    """Where ids and seeds come from."""

    def new_id(self, kind: IdKind) -> str:
        """A fresh typed id."""

    def new_seed(self) -> int:
        """A fresh sampling seed, 0 … 2**32 - 1."""

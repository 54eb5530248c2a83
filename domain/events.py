"""The events of a response. These structs are the log: everything else turnlog shows is derived from them.

The tag of an event is its topic in the store. A new field has a default, and a meaning never changes
under an old tag, so that a log written by any version can be read for ever.
"""

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from turnlog.domain.items import CallItem, Item, Logprob
from turnlog.domain.messages import Message
from turnlog.domain.tokens import PromptRecord
from turnlog.domain.usage import Timing, Usage

CacheClass = Literal["fresh", "cold_replay", "hit", "prefix_hit"]
Outcome = Literal["completed", "incomplete"]
FailureReason = Literal[
    "error",
    "client_abort",
    "finish_reason_error",
    "stream_exhausted",
    "cancelled",
    "server_restart",
    "engine_timeout",
    "engine_crashed",
    "shutting_down",
    "model_changed",
    "storage_full",
    "model_unavailable",
    "constraint_lost",
]

Surface = Literal["responses", "chat"]
"""The API by which a turn was asked for."""

SteerFailure = Literal["response_not_active", "successor_creation_failed", "server_restart"]
"""Why accepted steering input was not committed; the first two are codes of the API."""

Limit = Literal["max_output_tokens", "context_window"]
"""What bounds the length of an answer."""

IDEMPOTENCY_KEY = "idempotency-key"
"""The name of an idempotency key among the retry keys."""

WIRE_VERSION = 2
"""The version of the rules by which events become frames; a response keeps the one it was made with.

2: `incomplete_details` has `limit`; `top_k`, `min_p` and `repetition_penalty` are shown unless they are off;
U+0085, U+2028 and U+2029 are escaped; a cancelled turn ends with `response.incomplete` and status `cancelled`
(D-02).
"""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Something that happened to a response at `at_ms`, Unix time in milliseconds.

    `expired_sha256` is set on an event whose content was removed (D-14): the SHA-256, in hex, of the bytes
    that were stored in its place before. What is not content, such as times and usage, is still there.
    """

    at_ms: int
    expired_sha256: str | None = None


class Sampling(Struct, frozen=True, omit_defaults=True):
    """How tokens are drawn. The seed is the resolved one, so that a turn can be run again.

    Fields with a default are off by it. `stop` are texts that end the answer and are not part of it;
    `top_logprobs` is how many of the likeliest tokens to report per position, None for no log probabilities.
    """

    temperature: float
    top_p: float
    seed: int
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None


class Echoed(Struct, frozen=True):
    """The options of a request that its response only shows again."""

    max_tool_calls: int | None = None
    safety_identifier: str | None = None


class ResponseCreated(Event, frozen=True, kw_only=True, tag="response.created.v1"):
    """A turn was accepted and waits for its lane. Holds everything needed to run it again.

    `input` is the request's own messages; `instructions` the effective ones (R-149); `tools`, `tool_choice`
    and `text` are what the client sent, `reasoning` has the effort that was used (R-173); `defaulted` names
    the fields whose values are the model's defaults (R-177); `expires_at` is Unix time in seconds (R-027),
    `retention_s` the retention that the request set, if it did (D-37); `instance_id` and `boot_id` say which
    loaded model and which process (R-142); `retry_keys` are the names and values by which clients mark their
    retries; `body_sha256` is the digest of the request's body, in hex, if an idempotency key is among them;
    `replay_of` is the response this one runs again. A `background` turn is untied from the request that made
    it and lets all others go first (D-40). Without `generate` only the prompt is read. `steers` are the
    steering submissions to the response that it continues, whose input is the beginning of its own. `surface`
    is the API that it came by.
    """

    response_id: str
    model: str
    input: tuple[Message, ...]
    sampling: Sampling
    expires_at: int
    instance_id: int
    boot_id: str
    owner: str
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, Any] = {}
    store: bool = True
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True
    text: dict[str, Any] = {}
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    prompt_cache_key: str | None = None
    cache_salt: str | None = None
    safety_identifier: str | None = None
    service_tier: str = "default"
    max_tool_calls: int | None = None
    retry_keys: dict[str, str] = {}
    body_sha256: str | None = None
    replay_of: str | None = None
    retention_s: int | None = None
    defaulted: tuple[str, ...] = ()
    wire_version: int = 1
    background: bool = False
    generate: bool = True
    steers: tuple[str, ...] = ()
    surface: Surface = "responses"

    @property
    def idempotency_key(self) -> str | None:
        """The key under which the client asked for this turn, if there is one."""
        return self.retry_keys.get(IDEMPOTENCY_KEY)


class TurnRequeued(Event, frozen=True, kw_only=True, tag="response.requeued.v1"):
    """A background turn that had not begun when its server stopped is run by the next one, `boot_id`."""

    boot_id: str


class GenerationStarted(Event, frozen=True, kw_only=True, tag="response.generation_started.v1"):
    """The turn got its lane and was given to the engine; adds what was decided at dispatch.

    `truncated_messages` is how many of the oldest messages were left out so that the rest fits;
    `output_limit` says what set `output_budget_tokens`.
    """

    cache_class: CacheClass
    model_fingerprint: str
    tokenizer_fingerprint: str
    prompt: PromptRecord
    output_budget_tokens: int
    truncated_messages: int = 0
    output_limit: Limit = "max_output_tokens"


class ItemOpened(Event, frozen=True, kw_only=True, tag="response.item_opened.v1"):
    """An output item began, at a place among all items that is never used again (R-265)."""

    output_index: int
    item: Item


class ItemExtended(Event, frozen=True, kw_only=True, tag="response.item_extended.v1"):
    """The open item grew by these pieces, one frame each; `logprobs`, if any, has one element a piece."""

    item_id: str
    deltas: tuple[str, ...]
    logprobs: tuple[tuple[Logprob, ...], ...] = ()


class ItemClosed(Event, frozen=True, kw_only=True, tag="response.item_closed.v1"):
    """The item is final. One that is not `listed` is left out of the response's output (R-286)."""

    output_index: int
    item: Item
    listed: bool = True


class ReasoningDropped(Event, frozen=True, kw_only=True, tag="response.reasoning_dropped.v1"):
    """The model thought on after its reasoning was closed; no client saw this (D-21)."""

    text: str


class TurnCommitted(Event, frozen=True, kw_only=True, tag="response.committed.v1"):
    """The engine ended well: the answer stands. `output_ids` are packed (domain.tokens), if it has any.

    `alone` says whether the turn had the engine's batch to itself from beginning to end; `reason` why it is
    incomplete, if that is not its length.
    """

    status: Outcome
    reason: Literal["steered"] | None = None
    usage: Usage
    timing: Timing = Timing()
    output_ids: bytes | None = None
    alone: bool | None = None


class SteerAccepted(Event, frozen=True, kw_only=True, tag="response.steer_accepted.v1"):
    """While the turn was running its client sent input for the one after it. Outside the lifecycle (D-40)."""

    steer_id: str
    input: tuple[Message, ...]


class SteersCommitted(Event, frozen=True, kw_only=True, tag="response.steers_committed.v1"):
    """What was accepted is part of the input of `successor`, whose first event is stored with this one."""

    steer_ids: tuple[str, ...]
    successor: str


class SteersFailed(Event, frozen=True, kw_only=True, tag="response.steers_failed.v1"):
    """What was accepted became part of no turn; its client was told, unless it was gone."""

    steer_ids: tuple[str, ...]
    code: SteerFailure


class TurnFailed(Event, frozen=True, kw_only=True, tag="response.failed.v1"):
    """The turn failed and cannot be continued. `message` tells an operator what went wrong.

    `calls` are those the engine had asked for before it failed; they were never offered (R-324).
    """

    reason: FailureReason
    message: str
    usage: Usage = Usage()
    timing: Timing = Timing()
    calls: tuple[CallItem, ...] = ()
    output_ids: bytes | None = None
    alone: bool | None = None


class TurnPersisted(Event, frozen=True, kw_only=True, tag="response.persisted.v1"):
    """The committed turn reached the store, `write_ms` milliseconds after it was handed over."""

    write_ms: float


class PersistHardTimedOut(Event, frozen=True, kw_only=True, tag="response.persist_hard_timed_out.v1"):
    """The write of the committed turn had not settled after `after_ms` milliseconds; it may still land."""

    after_ms: float


class ResponseDeleted(Event, frozen=True, kw_only=True, tag="response.deleted.v1"):
    """`asked_by` had the response deleted: it is gone for clients. Outside the lifecycle (D-40).

    `ContentExpired` follows when its content has been removed.
    """

    asked_by: str


class MetadataChanged(Event, frozen=True, kw_only=True, tag="response.metadata_changed.v1"):
    """Its owner gave the response other metadata, in place of all that it had. Outside the lifecycle."""

    metadata: dict[str, Any] = {}


class ContentExpired(Event, frozen=True, kw_only=True, tag="response.content_expired.v1"):
    """The response had expired or was deleted, and its content was removed from the log (D-14).

    Outside the lifecycle.
    """


ResponseEvent = (
    ResponseCreated
    | TurnRequeued
    | GenerationStarted
    | ItemOpened
    | ItemExtended
    | ItemClosed
    | ReasoningDropped
    | TurnCommitted
    | TurnFailed
    | SteerAccepted
    | SteersCommitted
    | SteersFailed
    | TurnPersisted
    | PersistHardTimedOut
    | ResponseDeleted
    | MetadataChanged
    | ContentExpired
)


class Recorded(Struct, frozen=True):
    """An event in its place: the `version`-th of its response, counted from 1 without a gap."""

    response_id: str
    version: int
    event: ResponseEvent


def topic(event: ResponseEvent | type[ResponseEvent]) -> str:
    """The event's tag, which is its topic in the store."""
    return str(event.__struct_config__.tag)


def merged(events: Iterable[ResponseEvent]) -> list[ResponseEvent]:
    """The same story in fewer events: neighbouring deltas of one item become one, boundaries kept.

    Framing and folding the result gives what framing and folding `events` gave. The merged event keeps
    the time of its first delta.
    """
    story: list[ResponseEvent] = []
    run: list[ItemExtended] = []

    def end_run() -> None:
        if run:
            deltas = tuple(delta for event in run for delta in event.deltas)
            logprobs = tuple(each for event in run for each in event.logprobs)
            story.append(replace(run[0], deltas=deltas, logprobs=logprobs))
            run.clear()

    for event in events:
        if not isinstance(event, ItemExtended):
            end_run()
            story.append(event)
            continue
        if run and (run[0].item_id != event.item_id or bool(run[0].logprobs) != bool(event.logprobs)):
            end_run()
        run.append(event)
    end_run()
    return story

"""The response: one turn as an event-sourced aggregate. Commands produce events; events change its state."""

from collections.abc import Callable, Iterable
from typing import assert_never

from msgspec.structs import asdict, replace

from turnlog.domain.assembler import Assembler, turn_cost
from turnlog.domain.errors import IllegalTransitionError
from turnlog.domain.events import (
    WIRE_VERSION,
    CacheClass,
    ContentExpired,
    FailureReason,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    Limit,
    MetadataChanged,
    PersistHardTimedOut,
    ReasoningDropped,
    ResponseCreated,
    ResponseDeleted,
    ResponseEvent,
    Sampling,
    SteerAccepted,
    SteerFailure,
    SteersCommitted,
    SteersFailed,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
    TurnRequeued,
)
from turnlog.domain.ids import IdKind
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.lifecycle import Lifecycle, Status
from turnlog.domain.messages import Message
from turnlog.domain.output import Output
from turnlog.domain.ports import End, EngineChunk, EngineInfo, TurnStats
from turnlog.domain.request import TurnRequest
from turnlog.domain.tokens import PromptRecord
from turnlog.domain.tools import Toolbox, ToolChoice
from turnlog.domain.usage import Timing, Usage

Events = list[ResponseEvent]

_MESSAGES: dict[FailureReason, str] = {
    "client_abort": "the client left before the turn was done",
    "engine_crashed": "the engine's process ended before the turn was done",
    "engine_timeout": "the engine did not answer in time",
    "stream_exhausted": "the engine stopped without an end",
    "cancelled": "the turn was cancelled",
    "server_restart": "the server stopped before the turn was done",
    "shutting_down": "the server was shut down before the turn was done",
}


class Response(Lifecycle):
    """One turn. Its state changes only by applying events.

    Commands (`start`, `receive`, `finish`, `fail`, and those of `Lifecycle`) check the lifecycle, apply the
    resulting events, and return them for the log. `asked_ms` is when the request arrived, in Unix
    milliseconds; the log does not record it, so a response read from there has its creation time instead.
    `steers` is the accepted steering input whose fate is open, by the id of its submission.
    """

    __slots__ = ("_assembler", "asked_ms", "created", "ended", "output", "started", "steers")

    def __init__(self, created: ResponseCreated) -> None:
        super().__init__()
        self.created = created
        self.started: GenerationStarted | None = None
        self.output = Output()
        self.ended: TurnCommitted | TurnFailed | None = None
        self.asked_ms = created.at_ms
        self.steers: dict[str, tuple[Message, ...]] = {}
        self._assembler: Assembler | None = None

    @property
    def id(self) -> str:
        """The response's typed id."""
        return self.created.response_id

    @property
    def items(self) -> list[Item]:
        """The closed, listed output items in order."""
        return self.output.items

    # ── commands ──────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def create(
        cls,
        request: TurnRequest,
        *,
        response_id: str,
        at_ms: int,
        asked_ms: int,
        owner: str,
        own_messages: tuple[Message, ...],
        instructions: str | None,
        sampling: Sampling,
        expires_at: int,
        instance_id: int,
        boot_id: str,
    ) -> "Response":
        """The response to an accepted request; its first event is `created`.

        Args:
            own_messages: the request's own input, references resolved.
            instructions: the effective instructions (R-149).
            expires_at: Unix time in seconds.
        """
        response = cls(
            ResponseCreated(
                at_ms=at_ms,
                response_id=response_id,
                model=request.model,
                input=own_messages,
                instructions=instructions,
                previous_response_id=request.previous_response_id,
                sampling=sampling,
                max_output_tokens=request.max_output_tokens,
                tools=request.tools,
                tool_choice=request.tool_choice,
                parallel_tool_calls=request.parallel_tool_calls,
                text=request.text,
                reasoning=request.reasoning,
                truncation=request.truncation,
                defaulted=request.defaulted,
                prompt_cache_key=request.prompt_cache_key,
                cache_salt=request.cache_salt,
                metadata=request.metadata,
                store=request.store,
                expires_at=expires_at,
                retention_s=request.retention_s,
                retry_keys=request.retry_keys,
                body_sha256=request.body_sha256,
                replay_of=request.replay_of,
                instance_id=instance_id,
                boot_id=boot_id,
                owner=owner,
                wire_version=WIRE_VERSION,
                background=request.background,
                generate=request.generate,
                steers=request.steers,
                surface=request.surface,
                **asdict(request.echoed),
            )
        )
        response.asked_ms = asked_ms
        return response

    def requeue(self, *, at_ms: int, boot_id: str) -> Events:
        """The turn waits for its lane again, in another process than the one that accepted it.

        Raises:
            IllegalTransitionError: it has started, or ended, already.
        """
        self.check(GenerationStarted)
        return self._happen(TurnRequeued(at_ms=at_ms, boot_id=boot_id))

    def start(
        self,
        *,
        at_ms: int,
        cache_class: CacheClass,
        engine: EngineInfo,
        prompt: PromptRecord,
        output_budget_tokens: int,
        output_limit: Limit,
        truncated_messages: int,
        new_id: Callable[[IdKind], str],
    ) -> Events:
        """Start the turn, which now has its slot in the lane; `receive` may be called from here on.

        Args:
            new_id: makes the ids of output items.

        Raises:
            IllegalTransitionError: the turn has already started or ended.
        """
        self.check(GenerationStarted)
        self._assembler = Assembler(
            self.output,
            new_id,
            # Which tool a call belongs to does not depend on which tools were offered.
            Toolbox(self.created.tools, ToolChoice()),
            parallel_calls=self.created.parallel_tool_calls,
        )
        return self._happen(
            GenerationStarted(
                at_ms=at_ms,
                cache_class=cache_class,
                model_fingerprint=engine.model_fingerprint,
                tokenizer_fingerprint=engine.tokenizer_fingerprint,
                prompt=prompt,
                output_budget_tokens=output_budget_tokens,
                output_limit=output_limit,
                truncated_messages=truncated_messages,
            )
        )

    def receive(self, chunk: EngineChunk, *, at_ms: int) -> Events:
        """Process a chunk of the engine's stream; may return no events.

        Raises:
            IllegalTransitionError: the turn is not running.
        """
        return self._assemble("receive", lambda assembler: assembler.receive(chunk, at_ms))

    def finish(self, end: End, *, at_ms: int) -> Events:
        """Handle the engine's end: close open items, emit the calls, then commit or fail the turn.

        Raises:
            IllegalTransitionError: the turn is not running.
        """
        timing = self._timing(end)
        return self._assemble("commit", lambda assembler: assembler.finish(end, timing, at_ms))

    def stop(self, stats: TurnStats | None, *, at_ms: int) -> Events:
        """Commit the turn as it is, because steering input waits for the next one.

        Args:
            stats: the engine's stats up to here, if it reported any.

        Raises:
            IllegalTransitionError: the turn is not running.
        """
        cost = turn_cost(stats, self._timing(stats)) if stats else {"usage": Usage()}
        return self._assemble("commit", lambda assembler: assembler.stop(cost, at_ms))

    def finish_reading(self, stats: TurnStats, *, at_ms: int) -> Events:
        """Commit a turn that was to read its prompt only; whatever the engine began to say is none of it.

        Raises:
            IllegalTransitionError: the turn is not running.
        """
        self.check(TurnCommitted)
        cost = turn_cost(stats, self._timing(stats))
        read = replace(cost["usage"], output_tokens=0, reasoning_tokens=0)
        ended = TurnCommitted(at_ms=at_ms, status="completed", **{**cost, "usage": read, "output_ids": None})
        return self._happen(ended)

    def accept_steer(self, steer_id: str, messages: tuple[Message, ...], *, at_ms: int) -> Events:
        """Take input for the turn after this one.

        Raises:
            IllegalTransitionError: the turn has ended.
        """
        if self.ended is not None:
            raise IllegalTransitionError(self.status, "steer")
        return self._happen(SteerAccepted(at_ms=at_ms, steer_id=steer_id, input=messages))

    def commit_steers(self, successor: str, *, at_ms: int) -> Events:
        """All input that was taken is part of the turn `successor`; no events if there is none."""
        if not self.steers:
            return []
        return self._happen(SteersCommitted(at_ms=at_ms, steer_ids=tuple(self.steers), successor=successor))

    def fail_steers(self, code: SteerFailure, *, at_ms: int) -> Events:
        """The input that was taken becomes part of no turn; no events if there is none."""
        if not self.steers:
            return []
        return self._happen(SteersFailed(at_ms=at_ms, steer_ids=tuple(self.steers), code=code))

    def fail(
        self, reason: FailureReason, message: str | None = None, *, at_ms: int, stats: TurnStats | None = None
    ) -> Events:
        """Fail the turn: open items are closed with the content streamed so far.

        A message is closed before reasoning (R-319).

        Args:
            message: what went wrong, for an operator; a default for `reason` if omitted.
            stats: the engine's stats for the turn, if it reported any (R-323).

        Raises:
            IllegalTransitionError: the turn has already ended.
        """
        self.check(TurnFailed)
        cost = turn_cost(stats, self._timing(stats)) if stats else {}
        open_entries = sorted(self.output.open_entries, key=lambda entry: not entry.is_message)
        return self._happen(
            *(
                ItemClosed(at_ms=at_ms, output_index=entry.output_index, item=entry.cut_short())
                for entry in open_entries
            ),
            TurnFailed(at_ms=at_ms, reason=reason, message=message or _MESSAGES[reason], **cost),
        )

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def apply(self, event: ResponseEvent) -> None:  # one case for each event
        """Update the state by an event. Never refuses: the log is always right."""
        match event:
            case ItemOpened() | ItemExtended() | ItemClosed():
                self.output.apply(event)
            case ResponseCreated():
                self.created = event
            case GenerationStarted():
                self.started = event
                self.move(event)
            case TurnCommitted():
                self.ended = event
                self.move(event)
            case TurnFailed():
                self.ended = event
                self.move(event)
                self.output.items = [_cut_short(item) for item in (*self.items, *event.calls)]
            case SteerAccepted(steer_id=steer_id, input=messages):
                self.steers[steer_id] = messages
            case SteersCommitted(steer_ids=steer_ids) | SteersFailed(steer_ids=steer_ids):
                for steer_id in steer_ids:
                    self.steers.pop(steer_id, None)
            case TurnPersisted() | PersistHardTimedOut():
                self.move(event)
            case MetadataChanged(metadata=metadata):
                self.created = replace(self.created, metadata=metadata)
            case TurnRequeued() | ReasoningDropped() | ResponseDeleted() | ContentExpired():
                pass
            case _:
                assert_never(event)

    def _happen(self, *events: ResponseEvent) -> Events:
        for event in events:
            self.apply(event)
        return list(events)

    def _assemble(self, command: str, assemble: Callable[[Assembler], Iterable[ResponseEvent]]) -> Events:
        if self.status is not Status.IN_PROGRESS:
            raise IllegalTransitionError(self.status, command)
        assert self._assembler, "a running turn was started by this object"
        events: Events = []
        for event in assemble(self._assembler):
            # Before the next one is requested: the assembler reads the updated output.
            self.apply(event)
            events.append(event)
        return events

    def _timing(self, stats: TurnStats) -> Timing:
        """The engine's own timing plus the waits before it (R-343)."""
        if self.started is None:
            return stats.timing
        return replace(
            stats.timing,
            queue_ms=float(self.started.at_ms - self.created.at_ms),
            pre_inference_ms=float(self.started.at_ms - self.asked_ms),
        )


def fold(events: Iterable[ResponseEvent]) -> Response:
    """Rebuild a response from its events; the first one is its `ResponseCreated`."""
    remaining = iter(events)
    created = next(remaining)
    assert isinstance(created, ResponseCreated), f"a response begins with {created}"
    response = Response(created)
    for event in remaining:
        response.apply(event)
    return response


def fold_stored(events: Iterable[ResponseEvent]) -> Response:
    """Rebuild a response from its *stored* events.

    A stored `TurnCommitted` is persisted, whether or not a `TurnPersisted` with the write time follows it.
    """
    response = fold(events)
    if response.status in (Status.COMMITTED, Status.HARD_TIMED_OUT):
        response.status = Status.PERSISTED
    return response


def api_status(response: Response) -> str:
    """The API's status: queued, in_progress, completed, incomplete, failed or cancelled."""
    match response.ended:
        case TurnCommitted(status=status):
            return status
        case TurnFailed(reason="cancelled"):
            return "cancelled"
        case TurnFailed():
            return "failed"
        case None:
            return "queued" if response.status is Status.CREATED else "in_progress"


def _cut_short(item: Item) -> Item:
    """The item as a failed turn shows it (R-321): messages and calls are incomplete."""
    match item:
        case MessageItem() | FunctionCallItem() | CustomCallItem():
            return replace(item, status="incomplete")
        case ReasoningItem():
            return item
        case _:
            assert_never(item)

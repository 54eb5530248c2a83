"""One turn's run, from the queue for its lane to the start of its last write.

It is a task of its own, so that a client that leaves ends it by a rule and not by accident.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple, Protocol

from turnlog.app.models import Admission, Models
from turnlog.app.models.memory import MemoryReservation
from turnlog.app.prefix_cache import CacheLookup, PrefixCache
from turnlog.app.turns.engine_stream import Arrivals
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.persistence import TurnLog
from turnlog.app.turns.plan import Plan
from turnlog.domain.conversation import with_answer
from turnlog.domain.errors import BindingChangedError, ModelUnavailableError, PromptCrashedEngineError
from turnlog.domain.events import (
    FailureReason,
    ResponseCreated,
    ResponseEvent,
    TurnCommitted,
)
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    Clock,
    End,
    EngineChunk,
    EngineCrashed,
    EngineFailed,
    EngineOutput,
    Exhausted,
    IdSource,
    InferenceEngine,
    Submission,
    TurnStats,
)
from turnlog.domain.response import Response

log = logging.getLogger("turnlog")

CANCEL_GRACE_S = 3.0
"""How long an engine has to end a turn that was stopped, before the turn ends without it."""


class TurnHooks(Protocol):
    """Called when a turn begins to wait for its lane and when it has left it, in the turn's own task."""

    def began(self, created: ResponseCreated) -> None:
        """A turn was accepted."""

    def ended(self, response: Response) -> None:
        """The turn has ended."""


class Limits(NamedTuple):
    """An engine's timeouts: for the next token, including the first, and for a whole turn."""

    token_s: float
    turn_s: float


class Dependencies(NamedTuple):
    """The dependencies that all runs of a server share."""

    models: Models
    prefix_cache: PrefixCache
    arrivals: Arrivals
    hooks: TurnHooks
    clock: Clock
    ids: IdSource
    limits: Limits


class TurnRun:
    """Drives one turn. Its events go to its readers at once and to its log, if it has one.

    Args:
        admission: the request's hold on its model; released when the turn has left its lane.
        lookup: the result of the cache lookup, and the names to keep the turn's own cache under.
    """

    def __init__(
        self,
        turn: LiveTurn,
        turn_log: TurnLog | None,
        plan: Plan,
        *,
        admission: Admission,
        lookup: CacheLookup,
        dependencies: Dependencies,
    ) -> None:
        self._turn = turn
        self._log = turn_log
        self._plan = plan
        self._admission = admission
        self._lookup = lookup
        (
            self._models,
            self._prefix_cache,
            self._arrivals,
            self._hooks,
            self._clock,
            self._ids,
            self._limits,
        ) = dependencies
        self._watchdog = asyncio.timeout(None)
        self._stops_early = False
        self._memory: MemoryReservation | None = None

    async def run(self) -> None:
        """Run the turn to its end; any error becomes the turn's failure."""
        self._hooks.began(self._turn.response.created)
        try:
            async with AsyncExitStack() as held:
                has_slot = await self._enter(held)
                self._turn.left_queue.set()
                if has_slot:
                    await self._generate()
        except Exception as error:
            # Our own bug, not the engine's; the client still gets its terminal frame.
            log.exception("[responses] the turn %s failed unexpectedly", self._turn.response.id)
            if self._turn.response.ended is None:
                self._fail("error", str(error))
        finally:
            self._turn.left_queue.set()
            self._admission.release()
            self._hooks.ended(self._turn.response)

    async def _enter(self, held: AsyncExitStack) -> bool:
        """Wait for a slot to run; a turn that is stopped meanwhile leaves the queue at once (D-26)."""
        task = asyncio.current_task()
        assert task
        self._turn.on_abort = task.cancel
        try:
            if self._turn.abort_reason is None:
                acquired = self._models.acquire(self._admission, self._most_tokens)
                self._memory = await held.enter_async_context(acquired)
                self._models.check_prompt(self._admission.lease, self._plan.record.digest)
                return True
        except BindingChangedError as changed:
            self._fail("model_changed", changed.message)
            return False
        except PromptCrashedEngineError as refused:
            self._fail("engine_crashed", refused.message)
            return False
        except ModelUnavailableError as unavailable:
            self._fail("model_unavailable", unavailable.message)
            return False
        except asyncio.CancelledError:
            if self._turn.abort_reason is None:
                raise
            task.uncancel()
        if self._turn.stays_queued:
            self._turn.frames.break_off()
        else:
            self._fail(self._turn.abort_reason)
        return False

    @property
    def _engine(self) -> InferenceEngine:
        return self._admission.lease.engine

    @property
    def _most_tokens(self) -> int:
        """The most tokens that the turn can hold."""
        return len(self._plan.prompt.ids) + self._plan.output_budget_tokens

    async def _generate(self) -> None:
        """Submit the turn to the engine and process its outputs until the end."""
        created, plan, engine = self._turn.response.created, self._plan, self._engine
        # If the model was reloaded while the turn waited, its cache entries are gone.
        self._lookup = self._lookup.on(engine)
        started = self._turn.response.start(
            at_ms=self._clock.now_ms(),
            cache_class=self._lookup.cache_class,
            engine=engine.info,
            prompt=plan.record,
            output_budget_tokens=plan.output_budget_tokens,
            output_limit=plan.output_limit,
            truncated_messages=plan.truncated_messages,
            new_id=self._ids.new_id,
        )
        self._record(started)
        stream = self._arrivals.open(self._take, engine.drop)
        submission = Submission(
            turn_id=created.response_id,
            prompt=plan.prompt,
            sampling=created.sampling,
            output_budget_tokens=plan.output_budget_tokens,
            warm=self._prefix_cache.entry_for(self._lookup, plan.prompt),
            constraint=plan.constraint,
            tools=plan.toolbox.offered,
        )
        engine.submit(submission, stream.deliver)
        # Starts here: the wait for the lane is not the engine's time.
        self._watchdog = asyncio.timeout(self._limits.turn_s)
        try:
            async with self._watchdog:
                self._turn.on_abort = self._stop_generation
                await stream.until_over(self._limits.token_s)
        except TimeoutError:
            engine.cancel(created.response_id)
            if self._turn.abort_reason or self._stops_early:
                log.warning("[responses] the engine is slow to release %s", created.response_id)
                # Its prefill is worth keeping, however late it arrives (D-28).
                stream.take_late = partial(self._prefix_cache.keep_prefill, self._lookup, prompt=plan.prompt)
                self._end_early(None)
            else:
                log.exception(
                    "[responses] the engine of model %s hangs at %s", created.model, created.response_id
                )
                self._fail("engine_timeout")
        except BaseException:
            engine.cancel(created.response_id)
            raise

    def _stop_generation(self) -> None:
        """Have the engine end the turn at its next safe point, within `CANCEL_GRACE_S`."""
        self._engine.cancel(self._turn.response.id)
        if not self._watchdog.expired():
            self._watchdog.reschedule(asyncio.get_running_loop().time() + CANCEL_GRACE_S)

    def _take(self, output: EngineOutput) -> None:
        match output:
            case _ if self._turn.response.ended is not None:
                pass  # the store has refused the turn; the engine's remaining outputs are too late
            case End() if not self._turn.response.created.generate:
                self._end_early(output)
            case End():
                self._record(self._turn.response.finish(output, at_ms=self._clock.now_ms()))
            case EngineFailed(message=message, stats=stats, constraint_lost=True):
                self._fail("constraint_lost", message, stats)
            case EngineFailed(message=message, stats=stats):
                # Without the engine's message, which may quote a prompt; the event has it.
                log.error(
                    "[responses] the engine of model %s failed at %s",
                    self._turn.response.created.model,
                    self._turn.response.id,
                )
                self._fail("error", message, stats)
            case EngineCrashed(message=message):
                self._fail("engine_crashed", message)
            case Exhausted():
                self._fail("stream_exhausted")
            case Cancelled(stats=stats):
                self._end_early(stats)
            case chunk:
                self._take_chunk(chunk)
        if isinstance(output, End | Cancelled) and output.cache is not None:
            self._keep_cache(output, output.cache)

    def _take_chunk(self, chunk: EngineChunk) -> None:
        """Record what the model says, and stop it if only its prompt was asked for, or if it is steered."""
        events: list[ResponseEvent] = []
        if self._turn.response.created.generate:
            events = self._turn.response.receive(chunk, at_ms=self._clock.now_ms())
            self._record(events)
            if not (self._turn.is_steered and events):
                return  # without events it may be in the midst of a call, which is never cut
        if not self._stops_early:
            self._stops_early = True
            self._stop_generation()

    def _end_early(self, stats: TurnStats | None) -> None:
        """End a turn that the engine has ended as it was told to, or does not end.

        Args:
            stats: the engine's, if it reported any.
        """
        response, at_ms = self._turn.response, self._clock.now_ms()
        if reason := self._turn.abort_reason:
            self._fail(reason, stats=stats)
        elif not response.created.generate:
            read = stats or TurnStats(prompt_tokens=len(self._plan.prompt.ids), output_tokens=0)
            self._record(response.finish_reading(read, at_ms=at_ms))
        elif self._stops_early:
            self._record(response.stop(stats, at_ms=at_ms))
        else:
            self._fail("cancelled", stats=stats)

    def _keep_cache(self, final: End | Cancelled, handle: CacheHandle) -> None:
        """Hand the engine's cache to the prefix cache, unless the turn failed (D-24, D-28)."""
        if self._memory:
            self._memory.resize(0)  # the pool reserves it from here on
        if isinstance(final, Cancelled):
            self._prefix_cache.keep_prefill(self._lookup, handle, self._plan.prompt)
        elif isinstance(self._turn.response.ended, TurnCommitted):
            response, output_ids = self._turn.response, final.output_ids or ()
            self._prefix_cache.adopt(
                self._lookup,
                response.id,
                handle,
                ids=self._plan.prompt.ids + output_ids,
                answers=with_answer(self._plan.answers, response, output_ids),
            )
        else:
            self._engine.drop(handle)

    def _record(self, events: list[ResponseEvent]) -> None:
        if not events:
            return
        self._turn.publish(events)
        if self._log is None:
            return
        if self._turn.response.ended is not None:
            self._log.finish(self._turn, events)
        else:
            self._log.keep(events)

    def _fail(
        self, reason: FailureReason, message: str | None = None, stats: TurnStats | None = None
    ) -> None:
        if self._turn.response.ended is not None:
            return  # the store has refused the turn, and its client knows
        self._record(self._turn.response.fail(reason, message, at_ms=self._clock.now_ms(), stats=stats))

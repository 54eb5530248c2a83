"""One turn's run, from the queue for its lane to the start of its last write.

It is a task of its own, so that a client that leaves ends it by a rule and not by accident.
"""

import asyncio
import logging
from typing import NamedTuple

from msgspec.structs import replace

from app.engine_stream import EngineStream
from app.live import LiveTurn
from app.persistence import TurnLog
from app.planning import Plan
from domain.events import FailureReason, GenerationStarted, ResponseEvent, TurnFailed
from domain.ports import (
    Cancelled,
    Clock,
    End,
    EngineFailed,
    EngineOutput,
    Exhausted,
    IdSource,
    Submission,
)
from domain.turn import TurnAssembler, epilogue
from domain.usage import Timing

log = logging.getLogger("turnlog")

_MESSAGES: dict[FailureReason, str] = {
    "client_abort": "the client left before the turn was done",
    "engine_timeout": "the engine did not answer in time",
    "stream_exhausted": "the engine stopped without an end",
    "cancelled": "the turn was cancelled",
    "shutting_down": "the server was shut down before the turn was done",
}


CANCEL_PATIENCE_S = 3.0
"""How long an engine has to end a turn that was stopped, before the turn ends without it."""


class Limits(NamedTuple):
    """How long an engine may take: for the next token, the first one included, and for a whole turn."""

    token_s: float
    turn_s: float


class TurnRun:
    """Drives one turn. What happens goes to the turn's readers at once and to its log, if it has one."""

    def __init__(
        self,
        turn: LiveTurn,
        turn_log: TurnLog | None,
        plan: Plan,
        *,
        clock: Clock,
        ids: IdSource,
        limits: Limits,
    ) -> None:
        self._turn = turn
        self._log = turn_log
        self._plan = plan
        self._clock = clock
        self._limits = limits
        self._watchdog = asyncio.timeout(limits.turn_s)
        self._assembler = TurnAssembler(ids.new_id, plan.toolbox, parallel_calls=plan.parallel_calls)

    async def run(self) -> None:
        """Run the turn to its end; whatever goes wrong becomes its failure."""
        try:
            await self._run_in_lane()
        except Exception as error:
            # A bug of ours, not the engine's; the client still gets its terminal.
            log.exception("[responses] the turn %s broke", self._turn.response.id)
            if self._turn.response.ended is None:
                self._fail("error", str(error))

    async def _run_in_lane(self) -> None:
        lane = self._plan.model.lane
        if not await self._enter(lane):
            return
        try:
            await self._generate()
        finally:
            lane.release()

    async def _enter(self, lane: asyncio.Semaphore) -> bool:
        """Wait for a place in the lane; a turn that is stopped meanwhile leaves the queue at once (D-26)."""
        task = asyncio.current_task()
        assert task
        self._turn.on_abort = task.cancel
        try:
            if self._turn.abort_reason is None:
                await lane.acquire()
                return True
        except asyncio.CancelledError:
            if self._turn.abort_reason is None:
                raise
            task.uncancel()
        self._fail(self._turn.abort_reason)
        return False

    async def _generate(self) -> None:
        """Give the turn to the engine and take what comes back, until its end."""
        created, plan = self._turn.response.created, self._plan
        info = plan.model.engine.info
        started = GenerationStarted(
            at_ms=self._clock.now_ms(),
            cache_class="cold_replay" if created.previous_response_id else "fresh",
            model_fingerprint=info.model_fingerprint,
            tokenizer_fingerprint=info.tokenizer_fingerprint,
            prompt=plan.record,
            output_budget_tokens=plan.output_budget_tokens,
            truncated_messages=plan.truncated_messages,
        )
        self._record([started])
        stream = EngineStream()
        submission = Submission(
            turn_id=created.response_id,
            prompt=plan.prompt,
            sampling=created.sampling,
            output_budget_tokens=plan.output_budget_tokens,
            guide=plan.guide,
            tools=plan.toolbox.offered,
        )
        plan.model.engine.submit(submission, stream.deliver)
        try:
            async with self._watchdog:
                self._turn.on_abort = self._stop_generation
                async for output in stream.outputs(self._limits.token_s):
                    self._take(output)
        except TimeoutError:
            # The engine hangs; the turn ends without it, and what it still says goes nowhere.
            stream.abandon(plan.model.engine.drop)
            plan.model.engine.cancel(created.response_id)
            log.exception(
                "[responses] the engine of model %s hangs at %s", plan.model.name, created.response_id
            )
            self._fail(self._turn.abort_reason or "engine_timeout")

    def _stop_generation(self) -> None:
        """Have the engine end the turn at its next safe point, and do not wait for that too long."""
        self._plan.model.engine.cancel(self._turn.response.id)
        self._watchdog.reschedule(asyncio.get_running_loop().time() + CANCEL_PATIENCE_S)

    def _take(self, output: EngineOutput) -> None:
        match output:
            case End():
                self._record(self._assembler.finish(output, self._timing(output), self._clock.now_ms()))
            case EngineFailed(message=message):
                log.error(
                    "[responses] the engine of model %s failed at %s: %s",
                    self._plan.model.name,
                    self._turn.response.id,
                    message,
                )
                self._fail("error", message)
            case Exhausted():
                self._fail("stream_exhausted")
            case Cancelled():
                self._fail(self._turn.abort_reason or "cancelled")
            case chunk:
                self._record(self._assembler.receive(chunk, self._clock.now_ms()))
        if isinstance(output, End | Cancelled) and output.cache is not None:
            self._plan.model.engine.drop(output.cache)

    def _timing(self, end: End) -> Timing:
        """The engine's own times and the waits before it (R-343)."""
        response = self._turn.response
        assert response.started
        return replace(
            end.timing,
            queue_ms=float(response.started.at_ms - response.created.at_ms),
            pre_inference_ms=float(response.started.at_ms - self._plan.asked_ms),
        )

    def _record(self, events: list[ResponseEvent]) -> None:
        if not events:
            return
        for event in events:
            self._turn.take(event)
        if self._log is None:
            return
        if self._turn.response.ended is not None:
            self._log.finish(self._turn, events)
        else:
            self._log.keep(events)

    def _fail(self, reason: FailureReason, message: str | None = None) -> None:
        failed = TurnFailed(at_ms=self._clock.now_ms(), reason=reason, message=message or _MESSAGES[reason])
        self._record(epilogue(self._turn.response, failed))

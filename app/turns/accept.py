"""The central use case of the service: a request is checked, accepted and set running.

Everything that can refuse a turn comes first; then `ResponseCreated` records its acceptance, and everything
after that is an event (D-26). `app.turns.run` takes the turn from here to its end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from turnlog.app.models import Admission, Lease
from turnlog.app.settings import retention_s
from turnlog.app.turns.engine_stream import Arrivals
from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.persistence import Persistence, TurnLog
from turnlog.app.turns.preparation import Preparation, Prepared
from turnlog.app.turns.run import Dependencies, Limits, TurnHooks, TurnRun
from turnlog.app.turns.steering import Steering
from turnlog.app.turns.strict import StrictTurn
from turnlog.app.turns.unstored import UnstoredTurns
from turnlog.domain.errors import BindingChangedError, ShuttingDownError, StorageUnavailableError
from turnlog.domain.events import FailureReason, ResponseCreated
from turnlog.domain.ids import IdKind
from turnlog.domain.owners import LOCAL_OWNER
from turnlog.domain.ports import Clock, Framer, IdSource, JournalLoad
from turnlog.domain.request import TurnRequest
from turnlog.domain.rerun import Changes, as_request
from turnlog.domain.response import Response
from turnlog.domain.retention import expires_at

_TOKEN_BYTES = 36
"""The memory of one token id in a prompt: an integer and a reference to it."""


class Accepted(NamedTuple):
    """A turn that was accepted and stored, and has not begun.

    `version` is that of its last stored event, `followed` has the frames of its acceptance. `fingerprint` is
    that of the model it was accepted for; None if another process did that.
    """

    response: Response
    version: int
    followed: FrameLog
    fingerprint: str | None


class Turns:
    """Begins turns and sees each through to its last event. `on_shut_down` is called before they are ended.

    Args:
        new_framer: makes the framer of one stream, in the form that its turn was asked for.
        idempotency_grace_s: how long a turn under an idempotency key goes on without a client.
    """

    def __init__(
        self,
        *,
        preparation: Preparation,
        live: LiveTurns,
        persistence: Persistence,
        load: JournalLoad,
        clock: Clock,
        ids: IdSource,
        new_framer: Callable[[ResponseCreated], Framer],
        limits: Limits,
        hooks: TurnHooks,
        strict: bool,
        idempotency_grace_s: float,
    ) -> None:
        self.preparation = preparation
        self._models = models = preparation.models
        self._live = live
        self._persistence = persistence
        self._load = load
        self._clock = clock
        self._ids = ids
        self._new_framer = new_framer
        self._boot_id = preparation.boot_id
        self._prefix_cache = prefix_cache = preparation.prefix_cache
        self._dependencies = Dependencies(models, prefix_cache, Arrivals(), hooks, clock, ids, limits)
        self._strict = strict
        self._idempotency_grace_s = idempotency_grace_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._shutting_down = False
        self.on_shut_down: Callable[[], None] = lambda: None

    async def begin(
        self,
        request: TurnRequest,
        owner: str = LOCAL_OWNER,
        *,
        size_bytes: int = 0,
        yields: bool = False,
        unstored: UnstoredTurns | None = None,
        steering: Steering | None = None,
    ) -> LiveTurn:
        """Accept a turn of `owner` and set it running.

        Args:
            size_bytes: the size of the request's body.
            yields: whether it lets all other turns of its model go first.
            unstored: the turns that it may continue though the log does not have them.
            steering: of the turn that it continues, if the request has the input that steers it.

        Raises:
            ResponsesError: the turn is refused; nothing has been recorded.
        """
        asked_ms = self._clock.now_ms()
        self._refuse_if_shutting_down()
        request = self._resolved(request)
        admission = self._models.admit(request.model, owner, yields=yields)
        try:
            admission.weigh(size_bytes)
            self._refuse_if_behind(request)
            prepared = await self.preparation.of(request, owner, admission, asked_ms, unstored=unstored)
            self._refuse_if_shutting_down()
            admission.weigh(size_bytes + len(prepared.plan.prompt.ids) * _TOKEN_BYTES)
            response = self._created(prepared, admission.lease.instance_id)
            return self._set_running(response, prepared, admission, steering=steering)
        except BaseException:
            admission.release()
            raise

    def steering(self, turn: LiveTurn) -> Steering:
        """Takes input that steers a turn; one for each turn."""
        return Steering(turn, self._persistence.steered, self._clock, self._ids)

    async def accept(self, request: TurnRequest, owner: str, *, size_bytes: int = 0) -> tuple[Response, str]:
        """Accept a turn of `owner` that is not to begin yet; its response, and its model's fingerprint.

        Raises:
            ResponsesError: the turn is refused; nothing has been recorded, nor is by this.
        """
        asked_ms = self._clock.now_ms()
        self._refuse_if_shutting_down()
        request = self._resolved(request)
        # Its model is let go again: what waits long must not keep others out of memory.
        admission = self._models.admit(request.model, owner, yields=True)
        try:
            admission.weigh(size_bytes)
            self._refuse_if_behind(request)
            prepared = await self.preparation.of(request, owner, admission, asked_ms)
            self._refuse_if_shutting_down()
            return (
                self._created(prepared, admission.lease.instance_id),
                admission.lease.engine.info.model_fingerprint,
            )
        finally:
            admission.release()

    async def resume(self, accepted: Accepted) -> LiveTurn:
        """Set a turn running that was accepted before; it lets all other turns of its model go first.

        Raises:
            ResponsesError: it cannot run any more, because its chain or model is gone; nothing was recorded.
        """
        response, created = accepted.response, accepted.response.created
        admission = self._models.admit(created.model, created.owner, yields=True)
        try:
            request = replace(as_request(created, Changes()), replay_of=created.replay_of)
            prepared = await self.preparation.of(request, created.owner, admission, response.asked_ms)
            _refuse_if_changed(admission.lease, accepted.fingerprint)
            self._refuse_if_shutting_down()
            return self._set_running(response, prepared, admission, accepted)
        except BaseException:
            admission.release()
            raise

    def end(self, accepted: Accepted, reason: FailureReason, message: str | None = None) -> LiveTurn:
        """End a turn that was accepted before and is not to run."""
        response, created = accepted.response, accepted.response.created
        hooks = self._dependencies.hooks
        turn, turn_log = self._open(response, created.instance_id, created.expires_at * 1000, accepted)
        assert turn_log, "what waits was stored"
        self._live.add(turn)
        hooks.began(created)
        events = response.fail(reason, message, at_ms=self._clock.now_ms())
        turn.publish(events)
        turn_log.finish(turn, events)
        turn.left_queue.set()
        hooks.ended(response)
        return turn

    async def count(self, request: TurnRequest, owner: str, *, size_bytes: int = 0) -> int:
        """How many tokens the engine would read for a turn of `owner`; nothing is recorded.

        Raises:
            ResponsesError: such a turn would be refused, except that its prompt may be too long.
        """
        asked_ms = self._clock.now_ms()
        self._refuse_if_shutting_down()
        request = self._resolved(request)
        admission = self._models.admit(request.model, owner)
        try:
            admission.weigh(size_bytes)
            prepared = await self.preparation.of(request, owner, admission, asked_ms, fits=False)
            return len(prepared.plan.prompt.ids)
        finally:
            admission.release()

    @property
    def running(self) -> int:
        """How many accepted turns have not ended."""
        return len(self._tasks)

    @property
    def shutting_down(self) -> bool:
        """Whether new turns are refused because the server is shutting down."""
        return self._shutting_down

    async def drain(self) -> None:
        """Refuse new turns and wait for the accepted ones to finish."""
        self._shutting_down = True
        self.on_shut_down()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def shut_down(self, grace_s: float) -> None:
        """Refuse new turns, abort the running ones and wait for their writes, for `grace_s` at most."""
        self._shutting_down = True
        self.on_shut_down()
        self._live.abort_all("shutting_down")
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                await self._persistence.until_settled()

    def _refuse_if_shutting_down(self) -> None:
        if self._shutting_down:
            raise ShuttingDownError

    def _resolved(self, request: TurnRequest) -> TurnRequest:
        """The request for the model that its name means; a replay runs on the very model it names."""
        if request.replay_of is not None:
            return request
        return replace(request, model=self._models.resolve(request.model))

    def _refuse_if_behind(self, request: TurnRequest) -> None:
        if request.store and not self._load.accepts_new:
            raise StorageUnavailableError

    def _created(self, prepared: Prepared, instance_id: int) -> Response:
        now_ms = self._clock.now_ms()
        request, plan = prepared.request, prepared.plan
        if request.reasoning:
            request = replace(request, reasoning=request.reasoning | {"effort": plan.prompt.effort})
        sampling = request.sampling
        if request.new_seed:
            sampling = replace(sampling, seed=self._ids.new_seed())
        return Response.create(
            request,
            response_id=self._ids.new_id(IdKind.RESPONSE),
            at_ms=now_ms,
            asked_ms=plan.asked_ms,
            owner=prepared.owner,
            own_messages=plan.own,
            instructions=plan.instructions,
            sampling=sampling,
            expires_at=expires_at(now_ms, request.retention_s, retention_s()),
            instance_id=instance_id,
            boot_id=self._boot_id,
        )

    def _set_running(
        self,
        response: Response,
        prepared: Prepared,
        admission: Admission,
        accepted: Accepted | None = None,
        steering: Steering | None = None,
    ) -> LiveTurn:
        created, request, plan = response.created, prepared.request, prepared.plan
        lookup = self._prefix_cache.open(
            prepared.scope,
            previous_response_id=request.previous_response_id,
            key=request.prompt_cache_key,
            instructions=plan.instructions,
        )
        turn, turn_log = self._open(
            response, admission.lease.instance_id, prepared.expires_ms(created), accepted, steering
        )
        turn.cache_class = lookup.cache_class
        if created.idempotency_key:
            turn.grace_s = self._idempotency_grace_s
        if turn_log and created.boot_id != self._boot_id:
            events = response.requeue(at_ms=self._clock.now_ms(), boot_id=self._boot_id)
            turn.publish(events)
            turn_log.keep(events)
        run = TurnRun(
            turn, turn_log, plan, admission=admission, lookup=lookup, dependencies=self._dependencies
        )
        self._live.add(turn)
        task = asyncio.create_task(run.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if turn_log is None:  # otherwise its last write removes it
            task.add_done_callback(lambda _: self._live.remove(created.response_id))
        return turn

    def _open(
        self,
        response: Response,
        instance_id: int,
        expires_ms: int,
        accepted: Accepted | None,
        steering: Steering | None = None,
    ) -> tuple[LiveTurn, TurnLog | None]:
        """The turn as its readers follow it, and its log.

        A turn that is not to be stored leaves no event, only what its readers read (D-30).
        """
        created, followed = response.created, accepted.followed if accepted else None
        strict, new_framer = None, partial(self._new_framer, created)
        if self._strict and created.store:
            strict = StrictTurn(response, new_framer, self._clock, followed)
        turn = strict or LiveTurn(response, new_framer(), followed)
        written = strict.written if strict else None
        if accepted:
            resumed = self._persistence.resume(
                response.id, instance_id, expires_ms, written, version=accepted.version
            )
            return turn, resumed
        along = steering.commit(response.id, together=created.store) if steering else ()
        turn_log = self._persistence.begin(created, expires_ms, written, along) if created.store else None
        turn.log = turn_log
        return turn, turn_log


def _refuse_if_changed(lease: Lease, fingerprint: str | None) -> None:
    """Refuse to run a turn on another model than the one it was accepted for (D-26).

    Args:
        fingerprint: that of the model it was accepted for, if it is known.
    """
    if fingerprint not in (None, lease.engine.info.model_fingerprint):
        raise BindingChangedError(lease.name, "while the turn was queued")

"""The central use case of the service: a request is checked, accepted and set running.

Everything that can refuse a turn comes first; then `ResponseCreated` records its acceptance, and everything
after that is an event (D-26). `app.turns.run` takes the turn from here to its end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from turnlog.app.models import Admission, Lease, Models
from turnlog.app.prefix_cache import CacheLookup, PrefixCache
from turnlog.app.settings import retention_s
from turnlog.app.turns.chains import Chains
from turnlog.app.turns.engine_stream import Arrivals
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.persistence import Persistence
from turnlog.app.turns.plan import Plan, make_plan
from turnlog.app.turns.retrieval import Retrieval
from turnlog.app.turns.run import Dependencies, Limits, TurnHooks, TurnRun
from turnlog.app.turns.strict import StrictTurn
from turnlog.domain.continuation import check_identity
from turnlog.domain.conversation import Chain
from turnlog.domain.errors import BindingChangedError, ShuttingDownError, StorageUnavailableError
from turnlog.domain.ids import IdKind
from turnlog.domain.inputs import ItemReference
from turnlog.domain.owners import LOCAL_OWNER
from turnlog.domain.ports import Clock, Framer, IdSource, JournalLoad
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import Response
from turnlog.domain.retention import earliest_expiry, expires_at

_TOKEN_BYTES = 36
"""The memory of one token id in a prompt: an integer and a reference to it."""


class Turns:
    """Begins turns and sees each through to its last event.

    Args:
        new_framer: makes the framer of one stream.
        boot_id: identifies this process, so that a chain records which one made it (R-143).
        idempotency_grace_s: how long a turn under an idempotency key goes on without a client.
    """

    def __init__(
        self,
        *,
        models: Models,
        chains: Chains,
        retrieval: Retrieval,
        live: LiveTurns,
        persistence: Persistence,
        load: JournalLoad,
        clock: Clock,
        ids: IdSource,
        new_framer: Callable[[], Framer],
        boot_id: str,
        limits: Limits,
        prefix_cache: PrefixCache,
        hooks: TurnHooks,
        strict: bool,
        idempotency_grace_s: float,
    ) -> None:
        self._models = models
        self.chains = chains
        self._retrieval = retrieval
        self._live = live
        self._persistence = persistence
        self._load = load
        self._clock = clock
        self._ids = ids
        self._new_framer = new_framer
        self._boot_id = boot_id
        self._prefix_cache = prefix_cache
        self._dependencies = Dependencies(models, prefix_cache, Arrivals(), hooks, clock, ids, limits)
        self._strict = strict
        self._idempotency_grace_s = idempotency_grace_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._shutting_down = False

    async def begin(
        self, request: TurnRequest, owner: str = LOCAL_OWNER, *, size_bytes: int = 0, yields: bool = False
    ) -> LiveTurn:
        """Accept a turn of `owner` and set it running.

        Args:
            size_bytes: the size of the request's body.
            yields: whether it lets all other turns of its model go first.

        Raises:
            ResponsesError: the turn is refused; nothing has been recorded.
        """
        asked_ms = self._clock.now_ms()
        self._refuse_if_shutting_down()
        if request.replay_of is None:  # a replay never falls back to the default model
            request = replace(request, model=self._models.resolve(request.model))
        admission = self._models.admit(request.model, yields=yields)
        try:
            admission.weigh(size_bytes)
            return await self._begin(request, owner, admission, asked_ms, size_bytes)
        except BaseException:
            admission.release()
            raise

    async def _begin(
        self, request: TurnRequest, owner: str, admission: Admission, asked_ms: int, size_bytes: int
    ) -> LiveTurn:
        """The rest of `begin`; the turn owns the admission when this returns."""
        if request.store and not self._load.accepts_new:
            raise StorageUnavailableError
        lease = await admission.take_lease()
        request = request.with_defaults(self._models.defaults(lease.name))
        response_id = self._ids.new_id(IdKind.RESPONSE)
        chain = await self.chains.resolve(request.previous_response_id, owner)
        if chain:
            self._check_model(chain, lease, exempt=request.replay_of is not None)
        referenced = {piece.id for piece in request.input if isinstance(piece, ItemReference)}
        items = await self._retrieval.items(referenced, owner) if referenced else {}
        scope = self._prefix_cache.scope(owner, request.cache_salt, lease.engine)
        plan = await asyncio.to_thread(
            make_plan,
            lease.engine,
            request,
            chain,
            items,
            self._prefix_cache.answers(scope),
            window_tokens=self._models.window_tokens(lease.engine),
            asked_ms=asked_ms,
        )
        self._models.check_prompt(lease, plan.record.digest)
        self._refuse_if_shutting_down()
        admission.weigh(size_bytes + len(plan.prompt.ids) * _TOKEN_BYTES)
        lookup = self._prefix_cache.open(
            scope,
            previous_response_id=request.previous_response_id,
            key=request.prompt_cache_key,
            instructions=plan.instructions,
        )
        response = self._created(response_id, request, plan, owner, lease.instance_id)
        # This number is all that the turn's last write keeps of the chain.
        expires_at_s = earliest_expiry(response.created, (each.created for each in chain))
        return self._set_running(response, plan, admission, lookup, earliest_expiry_ms=expires_at_s * 1000)

    def _check_model(self, chain: Chain, lease: Lease, *, exempt: bool) -> None:
        """Refuse to continue a chain on another model than the one it was made with (R-138, R-145).

        Args:
            exempt: whether a different model is intended, as in a replay (D-27).
        """
        if not lease.holds:
            raise BindingChangedError(lease.name, "while its previous response was looked up")
        if exempt:
            return
        check_identity(
            chain[-1],
            model=lease.name,
            boot_id=self._boot_id,
            instance_id=lease.instance_id,
            fingerprint=lease.engine.info.model_fingerprint,
        )

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
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def shut_down(self, grace_s: float) -> None:
        """Refuse new turns, abort the running ones and wait for their writes, for `grace_s` at most."""
        self._shutting_down = True
        self._live.abort_all("shutting_down")
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                await self._persistence.until_settled()

    def _refuse_if_shutting_down(self) -> None:
        if self._shutting_down:
            raise ShuttingDownError

    def _created(
        self, response_id: str, request: TurnRequest, plan: Plan, owner: str, instance_id: int
    ) -> Response:
        now_ms = self._clock.now_ms()
        if request.reasoning:
            request = replace(request, reasoning=request.reasoning | {"effort": plan.prompt.effort})
        sampling = request.sampling
        if request.new_seed:
            sampling = replace(sampling, seed=self._ids.new_seed())
        return Response.create(
            request,
            response_id=response_id,
            at_ms=now_ms,
            asked_ms=plan.asked_ms,
            owner=owner,
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
        plan: Plan,
        admission: Admission,
        lookup: CacheLookup,
        *,
        earliest_expiry_ms: int,
    ) -> LiveTurn:
        created = response.created
        strict = (
            StrictTurn(response, self._new_framer, self._clock) if self._strict and created.store else None
        )
        turn = strict or LiveTurn(response, self._new_framer())
        turn.cache_class = lookup.cache_class
        if created.idempotency_key:
            turn.grace_s = self._idempotency_grace_s
        # An unstored turn leaves no events, only the frames its readers read (D-30).
        written = strict.written if strict else None
        turn_log = self._persistence.begin(created, earliest_expiry_ms, written) if created.store else None
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

"""The use case at the heart of the service: a request is checked, accepted and set running.

Everything that can refuse a turn comes first; then `ResponseCreated` says that it was accepted, and from
there on whatever happens is an event (D-26). `app.turns.run` takes it from here to its end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from turnlog.app.models import Entry, Lease, Models
from turnlog.app.prefix_cache import Session, Sessions
from turnlog.app.settings import retention_s
from turnlog.app.turns.chains import Chains
from turnlog.app.turns.engine_stream import Arrivals
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.persistence import Persistence
from turnlog.app.turns.plan import Plan, make_plan
from turnlog.app.turns.retrieval import Retrieval
from turnlog.app.turns.run import Limits, Surroundings, TurnObserver, TurnRun
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


class Turns:
    """Begins turns and sees each through to its last event.

    Args:
        new_framer: makes the framer of one stream.
        boot_id: names this process, so that a chain knows which one made it (R-143).
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
        sessions: Sessions,
        observer: TurnObserver,
        strict: bool,
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
        self._sessions = sessions
        self._surroundings = Surroundings(models, sessions, Arrivals(), observer, clock, ids, limits)
        self._strict = strict
        self._tasks: set[asyncio.Task[None]] = set()
        self._shutting_down = False

    async def begin(
        self, request: TurnRequest, owner: str = LOCAL_OWNER, *, yields: bool = False
    ) -> LiveTurn:
        """Accept a turn of `owner` and set it running.

        Args:
            yields: whether it lets all other turns of its model go first.

        Raises:
            ResponsesError: the turn is refused; nothing has been recorded.
        """
        asked_ms = self._clock.now_ms()
        self._refuse_if_shutting_down()
        entry = self._models.admit(request.model, yields=yields)
        try:
            return await self._begin(request, owner, entry, asked_ms)
        except BaseException:
            entry.release()
            raise

    async def _begin(self, request: TurnRequest, owner: str, entry: Entry, asked_ms: int) -> LiveTurn:
        """The rest of `begin`; the entry is the turn's when this returns."""
        if request.store and not self._load.accepts_new:
            raise StorageUnavailableError
        lease = await entry.take_lease()
        response_id = self._ids.new_id(IdKind.RESPONSE)
        chain = await self.chains.resolve(request.previous_response_id, owner)
        if chain:
            self._check_model(chain, lease, exempt=request.replay_of is not None)
        referenced = {piece.id for piece in request.input if isinstance(piece, ItemReference)}
        items = await self._retrieval.items(referenced, owner) if referenced else {}
        scope = self._sessions.scope(owner, request.cache_salt, lease.engine)
        plan = await asyncio.to_thread(
            make_plan,
            lease.engine,
            request,
            chain,
            items,
            self._sessions.answers(scope),
            window_tokens=self._models.window_tokens(lease.engine),
            asked_ms=asked_ms,
        )
        self._models.check_prompt(lease, plan.record.digest)
        self._refuse_if_shutting_down()
        session = self._sessions.open(
            scope,
            previous_response_id=request.previous_response_id,
            key=request.prompt_cache_key,
            instructions=plan.instructions,
        )
        response = self._created(response_id, request, plan, owner, lease.instance_id)
        # One number is all that the turn's last write will know of the chain.
        expires_at_s = earliest_expiry(response.created, (each.created for each in chain))
        return self._set_running(response, plan, entry, session, earliest_expiry_ms=expires_at_s * 1000)

    def _check_model(self, chain: Chain, lease: Lease, *, exempt: bool) -> None:
        """Refuse to continue a chain on another model than the one it was made with (R-138, R-145).

        Args:
            exempt: whether another model is meant, as in a replay (D-27).
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

    async def shut_down(self, grace_s: float) -> None:
        """Take no new turns, end the running ones and see their writes through, for `grace_s` at most."""
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
        entry: Entry,
        session: Session,
        *,
        earliest_expiry_ms: int,
    ) -> LiveTurn:
        created = response.created
        strict = (
            StrictTurn(response, self._new_framer, self._clock) if self._strict and created.store else None
        )
        turn = strict or LiveTurn(response, self._new_framer())
        turn.cache_class = session.cache_class
        # A turn that is not to be stored leaves no event, only what its readers read (D-30).
        written = strict.written if strict else None
        turn_log = self._persistence.begin(created, earliest_expiry_ms, written) if created.store else None
        run = TurnRun(turn, turn_log, plan, entry=entry, session=session, surroundings=self._surroundings)
        self._live.add(turn)
        task = asyncio.create_task(run.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if turn_log is None:  # else its last write lets it go
            task.add_done_callback(lambda _: self._live.remove(created.response_id))
        return turn

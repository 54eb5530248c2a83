"""The use case at the heart of the service: a request is checked, accepted and set running.

Everything that can refuse a turn comes first; then `ResponseCreated` says that it was accepted, and from
there on whatever happens is an event (D-26). `app.running` takes it from here to its end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from app.chains import Chains
from app.live import LiveTurn
from app.models import Models
from app.persistence import Persistence
from app.planning import Plan, make_plan
from app.running import Limits, TurnRun
from app.settings import retention_s
from app.strict import StrictTurn
from domain.errors import ShuttingDownError, StorageUnavailableError
from domain.events import ResponseCreated, Sampling
from domain.ids import IdKind
from domain.inputs import ItemReference
from domain.items import Item
from domain.owners import LOCAL_OWNER
from domain.ports import Clock, EventReader, Framer, IdSource, JournalLoad
from domain.request import DEFAULT_TEMPERATURE, DEFAULT_TOP_P, TurnRequest
from domain.retention import expires_at

_SAMPLING_OPTIONS = (
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "top_logprobs",
)


class Turns:
    """Begins turns and sees each through to its last event.

    Args:
        live: where the turns are found whose last event is not stored yet, by response id.
        new_framer: makes the framer of one stream.
        boot_id: names this process, so that a chain knows which one made it (R-143).
    """

    def __init__(
        self,
        *,
        models: Models,
        chains: Chains,
        live: dict[str, LiveTurn],
        persistence: Persistence,
        reader: EventReader,
        load: JournalLoad,
        clock: Clock,
        ids: IdSource,
        new_framer: Callable[[], Framer],
        boot_id: str,
        limits: Limits,
        strict: bool,
    ) -> None:
        self._models = models
        self.chains = chains
        self._live = live
        self._persistence = persistence
        self._reader = reader
        self._load = load
        self._clock = clock
        self._ids = ids
        self._new_framer = new_framer
        self._boot_id = boot_id
        self._limits = limits
        self._strict = strict
        self._tasks: set[asyncio.Task[None]] = set()
        self._shutting_down = False

    async def begin(self, request: TurnRequest, owner: str = LOCAL_OWNER) -> LiveTurn:
        """Accept a turn of `owner` and set it running.

        Raises:
            ResponsesError: the turn is refused; nothing has been recorded.
        """
        asked_ms = self._clock.now_ms()
        self._refuse_if_shutting_down()
        model = self._models.find(request.model)
        if request.store and not self._load.accepts_new:
            raise StorageUnavailableError
        response_id = self._ids.new_id(IdKind.RESPONSE)
        chain = await self.chains.resolve(request.previous_response_id, owner)
        items = await self._referenced(request)
        plan = await asyncio.to_thread(make_plan, model, request, chain, items, asked_ms)
        self._refuse_if_shutting_down()
        created = self._created(response_id, request, plan, owner)
        # One number is all that the turn's last write will know of the chain.
        expires_at_s = min(each.expires_at for each in (created, *(link.created for link in chain)))
        return self._set_running(created, plan, earliest_expiry_ms=expires_at_s * 1000)

    async def shut_down(self, grace_s: float) -> None:
        """Take no new turns, end the running ones and see their writes through, for `grace_s` at most."""
        self._shutting_down = True
        for turn in list(self._live.values()):
            turn.abort("shutting_down")
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                if self._tasks:
                    await asyncio.wait(self._tasks)
                await self._persistence.until_settled()

    def _refuse_if_shutting_down(self) -> None:
        if self._shutting_down:
            raise ShuttingDownError

    async def _referenced(self, request: TurnRequest) -> dict[str, Item]:
        """The stored items that the request refers to, by id; those not there are left out."""
        wanted = {piece.id for piece in request.input if isinstance(piece, ItemReference)}
        if not wanted:
            return {}
        live = {
            item.id: item
            for turn in self._live.values()
            if turn.response.created.store
            for item in turn.response.items
            if item.id in wanted
        }
        now_s = self._clock.now_ms() // 1000
        return await asyncio.wrap_future(self._reader.items(wanted - live.keys(), now_s=now_s)) | live

    def _created(self, response_id: str, request: TurnRequest, plan: Plan, owner: str) -> ResponseCreated:
        now_ms = self._clock.now_ms()
        return ResponseCreated(
            at_ms=now_ms,
            response_id=response_id,
            model=request.model,
            input=plan.own,
            instructions=plan.instructions,
            previous_response_id=request.previous_response_id,
            sampling=self._sampling(request),
            max_output_tokens=request.max_output_tokens,
            tools=request.tools,
            tool_choice=request.tool_choice,
            parallel_tool_calls=request.parallel_tool_calls,
            text=request.text,
            reasoning=request.reasoning,
            truncation=request.truncation,
            prompt_cache_key=request.prompt_cache_key,
            cache_salt=request.cache_salt,
            safety_identifier=request.safety_identifier,
            max_tool_calls=request.max_tool_calls,
            metadata=request.metadata,
            store=request.store,
            expires_at=expires_at(now_ms, request.retention_s, retention_s()),
            retry_keys=request.retry_keys,
            instance_id=plan.model.instance_id,
            boot_id=self._boot_id,
            owner=owner,
        )

    def _sampling(self, request: TurnRequest) -> Sampling:
        """How the turn's tokens are drawn, with what was left open decided."""
        resolved = Sampling(
            temperature=DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
            top_p=DEFAULT_TOP_P if request.top_p is None else request.top_p,
            seed=self._ids.new_seed() if request.seed is None else request.seed,
        )
        # Only what was changed: the log leaves out a default by its identity, which an equal float has not.
        asked = {name: getattr(request, name) for name in _SAMPLING_OPTIONS}
        changed = {name: value for name, value in asked.items() if value != getattr(resolved, name)}
        return replace(resolved, **changed)

    def _set_running(self, created: ResponseCreated, plan: Plan, *, earliest_expiry_ms: int) -> LiveTurn:
        strict = (
            StrictTurn(created, self._new_framer, self._clock) if self._strict and created.store else None
        )
        turn = strict or LiveTurn(created, self._new_framer())
        # A turn that is not to be stored leaves no event, only what its readers read (D-30).
        written = strict.written if strict else None
        turn_log = self._persistence.begin(created, earliest_expiry_ms, written) if created.store else None
        run = TurnRun(turn, turn_log, plan, clock=self._clock, ids=self._ids, limits=self._limits)
        self._live[turn.response.id] = turn
        task = asyncio.create_task(run.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if turn_log is None:  # else its last write lets it go
            task.add_done_callback(lambda _: self._live.pop(created.response_id))
        return turn

"""The models of a server: declared by name, loaded at the first request, swapped and unloaded at run time."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from math import inf

from turnlog.app.models.admission import Admission, Beginning, ColdAdmissions
from turnlog.app.models.backlog import Backlog
from turnlog.app.models.gate import Gate
from turnlog.app.models.lane import Lane, LaneCounts, Sharing, YieldingAdmission
from turnlog.app.models.loading import Loading, LoadRecord, Suspends
from turnlog.app.models.memory import Memory, MemoryReservation
from turnlog.app.models.pace import FIRST_GUESS_S, retry_after_s
from turnlog.app.models.pressure import LOOK_S, Pressure
from turnlog.app.models.registry import Binding, Lease, Registry
from turnlog.app.models.running import running
from turnlog.app.models.status import ModelStatus, State
from turnlog.app.models.supervision import Supervisor
from turnlog.domain.budgets import Budget
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.errors import (
    ModelNotFoundError,
    ModelUnavailableError,
    PromptCrashedEngineError,
)
from turnlog.domain.owners import LOCAL_OWNER
from turnlog.domain.ports import Clock, InferenceEngine, ModelSource

log = logging.getLogger("turnlog")


class Models:
    """Model names and the models bound to them. Event loop only.

    Args:
        declared: the model sources by name; names with equal sources share one model.
        sampling: the defaults set for a name, which override the model's own.
        max_waiting: how many requests may wait for one model; None for no limit (R-040).
        max_waiting_bytes: how much memory all waiting requests may hold; None for no limit (D-38).
        spread: jitter from -1 to 1, drawn for each refusal (`retry_after_s`).
        is_shared: whether there are several owners; then each has a share of every model.
        default: the declared model that answers requests for a name that is not declared (R-059).
        wait_s: how long a load waits for memory.
    """

    def __init__(
        self,
        declared: Mapping[str, ModelSource],
        *,
        max_waiting: int | None,
        max_waiting_bytes: int | None = None,
        spread: Callable[[], float] = lambda: 0.0,
        is_shared: Callable[[], bool] = lambda: False,
        default: str | None = None,
        memory: Memory,
        wait_s: float,
        idle: Suspends,
        clock: Clock,
        sampling: Mapping[str, ModelDefaults] | None = None,
    ) -> None:
        self._declared = dict(declared)
        self._default = default
        self._means = dict(declared)
        self._sampling = dict(sampling or {})
        self._clock = clock
        self._wait_s = wait_s
        self._declared_s = clock.now_ms() // 1000
        self._asking: Counter[str] = Counter()
        self._swaps: Counter[ModelSource] = Counter()
        self._max_waiting = max_waiting
        self._spread = spread
        self._is_shared = is_shared
        # Of the busiest model.
        self._running = Budget("running_turns", 0, lambda: self._most_turns(lambda each: each.active))
        most = inf if max_waiting is None else max_waiting
        self._waiting = Budget(
            "waiting_turns", most, lambda: self._most_turns(lambda each: each.queued + each.reservations)
        )
        self._cold = ColdAdmissions(max_waiting, spread, Sharing(is_shared, full=self._waiting.reach))
        self._backlog = Backlog(max_waiting_bytes, self.retry_after_s, is_shared)
        self.budgets = (self._running, self._waiting, self._backlog.budget)
        self.registry = Registry(self._new_lane)
        self.memory = memory
        self.gate = Gate()
        self._loading = Loading(memory, self.gate, idle, clock, wait_s=wait_s)
        self._shrink_cache: Callable[[int], int] = lambda _: 0
        self._on_unload: Callable[[InferenceEngine], None] = lambda _: None
        self.supervisor = Supervisor(self._loading, self.registry, clock, self._forget_caches)
        self._pressure = Pressure(memory.budget_bytes)
        memory.reclaim_by(self._reclaim)
        memory.count_held(self._held_bytes)

    # ── requests ──

    def resolve(self, name: str) -> str:
        """The model that answers a request for `name`: the one of that name, or the default if there is none.

        Raises:
            ModelNotFoundError: it is not declared, and there is no default.
        """
        if name not in self._declared and self._default is not None:
            log.info("[models] request for an unknown model; using %s", self._default)
            return self._default
        self._require(name)
        return name

    def admit(self, name: str, owner: str = LOCAL_OWNER, *, yields: bool = False) -> Admission:
        """Admit a request of `owner` before any other work is done for it; never waits (R-030, R-032, R-038).

        Args:
            yields: whether it lets all other requests go first; it is then never refused.

        Raises:
            ModelNotFoundError: no such model is declared; the error lists those that are.
            QueueFullError, OwnersShareError: too many requests, or too many of the owner's, wait for it.
        """
        self._require(name)
        binding = self.registry.find(name)
        admission: Beginning = YieldingAdmission(owner)
        if not yields:
            admission = binding.lane.reservation(owner) if binding else self._cold.admit(name, owner)
        backlog = Backlog(None, self.retry_after_s) if yields else self._backlog
        return Admission(admission, partial(self._lease, name), self.memory.look_again, backlog, owner)

    async def _lease(self, name: str) -> Lease:
        self._asking[name] += 1
        try:
            while (binding := self.registry.find(name)) is None or self.supervisor.is_down(binding):
                if binding:
                    await self.supervisor.until_up(binding)
                else:
                    await self._load(self._means[name], name, label="responses")
            return self.registry.lease(name)
        finally:
            self._asking[name] -= 1

    def acquire(
        self, admission: Admission, most_tokens: int
    ) -> AbstractAsyncContextManager[MemoryReservation]:
        """Hold what a turn needs to run inside the block; see `running`."""
        return running(
            admission,
            most_tokens,
            gate=self.gate,
            memory=self.memory,
            supervisor=self.supervisor,
            clock=self._clock,
            wait_s=self._wait_s,
        )

    def retry_after_s(self, waiting: int | None = None) -> int:
        """In how many seconds the waiting requests will have run: `waiting` of them, or all (D-38).

        Uses the slowest model in memory, as it is not known which of them will have room first.
        """
        lanes = [binding.lane for binding in self.resident()]
        guess_s = retry_after_s(waiting or 0, 1, FIRST_GUESS_S, self._spread())
        return max((lane.retry_after_s(waiting) for lane in lanes), default=guess_s)

    def check_prompt(self, lease: Lease, digest: str) -> None:
        """Refuse a prompt that recently crashed the engine twice in a row.

        Raises:
            PromptCrashedEngineError: it did.
        """
        crashes = self.supervisor.crashes(self._means[lease.name])
        if until_ms := crashes.refused_until_ms(digest, now_ms=self._clock.now_ms()):
            raise PromptCrashedEngineError(
                datetime.fromtimestamp(until_ms / 1000, UTC).isoformat(timespec="seconds")
            )

    def window_tokens(self, engine: InferenceEngine) -> int | None:
        """The context window, or as much of it as fits the memory budget beside the weights."""
        info, budget_bytes = engine.info, self.memory.budget_bytes
        if budget_bytes is None or not info.kv_bytes_per_token:
            return info.context_window_tokens
        room_tokens = max(1, (budget_bytes - info.weight_bytes) // info.kv_bytes_per_token)
        return min(info.context_window_tokens or room_tokens, room_tokens)

    def defaults(self, name: str) -> ModelDefaults:
        """The values for a declared name's parameters that a request does not set (R-177)."""
        return self._sampling.get(name, ModelDefaults()).over(self._means[name].defaults)

    # ── operators ──

    def listed(self) -> list[ModelStatus]:
        """Every declared model, in the order of declaration."""
        return [self.status(name) for name in self._declared]

    def status(self, name: str) -> ModelStatus:
        """One declared model.

        Raises:
            ModelNotFoundError: no such model is declared.
        """
        self._require(name)
        binding, source = self.registry.find(name), self._means[name]
        state: State = "loading" if self._loading.is_loading(source) else "declared"
        down = binding is not None and self.supervisor.is_down(binding)
        vitals = binding.engine.vitals() if binding and not down else None
        counts = binding.lane.counts if binding else None
        crashes = self.supervisor.crashes(source)
        return ModelStatus(
            name=name,
            state="loading" if down else "resident" if binding else state,
            registered_s=binding.names[name] if binding else self._declared_s,
            instance_id=binding.instance_id if binding else None,
            weight_bytes=binding.engine.info.weight_bytes if binding else source.weight_bytes,
            aliases=tuple(other for other in self._names_of(source) if other != name),
            capacity=binding.lane.capacity if binding else 1,
            defaults=self.defaults(name),
            active_turns=counts.active if counts else 0,
            queued_turns=counts.queued + counts.reservations if counts else self._cold.count(name),
            process_id=vitals.process_id if vitals else None,
            memory_bytes=vitals.memory_bytes if vitals else 0,
            restarts=crashes.total,
            last_crash=crashes.last,
            unavailable=self.supervisor.given_up(source),
            reservations=counts.reservations if counts else self._cold.count(name),
            queue_limit=self._max_waiting,
            loads=tuple(record for record in self._loading.records if record.model == name),
        )

    async def load(self, name: str) -> ModelStatus:
        """Load a declared model into memory.

        Raises:
            ModelNotFoundError: no such model is declared.
            EngineError, ModelUnavailableError: it could not be loaded.
        """
        self._require(name)
        # Only once: if it is unloaded again immediately, two operators could otherwise loop forever.
        source = self._means[name]
        self.supervisor.forgive(source)
        if (binding := self.registry.find(name)) is None:
            await self._load(source, name, label="operator")
        else:
            await self.supervisor.until_up(binding)
        return self.status(name)

    async def unload(self, name: str) -> ModelStatus:
        """Unload the model that `name` means, under all its names; the next request loads it again.

        Running turns finish first; this does not wait for them.

        Raises:
            ModelNotFoundError: no such model is declared.
        """
        self._require(name)
        if (binding := self.registry.find(name)) and (freed := self._unload(binding)):
            # Cancelling the caller must not cancel the clean-up.
            await asyncio.shield(freed)
        return self.status(name)

    async def swap(self, name: str, to: str) -> ModelStatus:
        """Rebind `name` to the model declared as `to`, without a moment at which `name` is unbound.

        Turns running on the old model finish on it; queued ones fail with `model_changed`.

        Raises:
            ModelNotFoundError: one of the two is not declared.
            EngineError, ModelUnavailableError: the new model could not be loaded; nothing has changed.
        """
        self._require(name)
        self._require(to)
        source = self._declared[to]
        self._swaps[source] += 1
        try:
            while (engine := self._loading.engine(source)) is None:
                await self._load(source, to, label="operator")
            old = self.registry.find(name)
            self._means[name] = source
            self.supervisor.watch(self._bind(name, engine), source)
        finally:
            self._swaps[source] -= 1
            self._free_if_unused(source)
        if old and not old.names:
            self._unload(old)
        return self.status(name)

    # ── the rest of the server ──

    def put(self, name: str, engine: InferenceEngine) -> None:
        """Serve an existing engine under a declared name. It is not restarted after a crash."""
        self._loading.put(self._means[name], engine)
        self._bind(name, engine)

    def resident(self) -> list[Binding]:
        """The models in memory that have a name, once each."""
        return self.registry.bindings()

    def engine(self, name: str) -> InferenceEngine:
        """The engine that `name` means now.

        Raises:
            ModelNotFoundError: none is loaded for it.
        """
        if binding := self.registry.find(name):
            return binding.engine
        raise ModelNotFoundError(name, self._declared)

    @property
    def load_records(self) -> list[LoadRecord]:
        """The latest loads, oldest first."""
        return list(self._loading.records)

    def give_up_first(
        self, shrink_cache: Callable[[int], int], on_unload: Callable[[InferenceEngine], None]
    ) -> None:
        """Set what is reclaimed before a model is unloaded.

        Args:
            shrink_cache: evicts cache entries of at least that many bytes, if any; returns the bytes evicted.
            on_unload: called with an engine about to be closed, so that no cache entry of it is kept.
        """
        self._shrink_cache, self._on_unload = shrink_cache, on_unload

    def close(self) -> None:
        """Close every engine."""
        self.supervisor.close()
        self._loading.close()

    async def watch_memory(self) -> None:
        """Keep the engines within the budget, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            engines = [each.engine for each in self.resident() if not self.supervisor.is_down(each)]
            if excess_bytes := self._pressure.look(engines):
                self._shrink_cache(excess_bytes)
            # Memory that engines have freed by themselves may be enough for a waiting reservation.
            self.memory.look_again()

    # ── internals ──

    def _new_lane(self, engine: InferenceEngine) -> Lane:
        capacity = engine.info.concurrency
        self._running.limit = max(self._running.limit, capacity)
        sharing = Sharing(self._is_shared, full=self._waiting.reach, crowded=self._running.reach)
        return Lane(capacity, self._max_waiting, self._spread, sharing)

    def _most_turns(self, count: Callable[[LaneCounts], int]) -> int:
        return max((count(binding.lane.counts) for binding in self.resident()), default=0)

    def _held_bytes(self) -> int:
        return sum(binding.engine.vitals().memory_bytes for binding in self.resident())

    def _require(self, name: str) -> None:
        if name not in self._declared:
            raise ModelNotFoundError(name, self._declared)

    def _names_of(self, source: ModelSource) -> list[str]:
        return [name for name, means in self._means.items() if means == source]

    async def _load(self, source: ModelSource, name: str, *, label: str) -> None:
        def bind_all(engine: InferenceEngine) -> None:
            for each in self._names_of(source):
                self.supervisor.watch(self._bind(each, engine), source)
            self._free_if_unused(source)

        if label == "responses" and (error := self.supervisor.given_up(source)):
            raise ModelUnavailableError(error)
        # An alias, or a model unloaded while turns still run on it, is still in memory.
        if engine := self._loading.engine(source):
            bind_all(engine)
        else:
            await self._loading.load(source, name, label=label, loaded=bind_all)

    def _bind(self, name: str, engine: InferenceEngine) -> Binding:
        binding = self.registry.bind(name, engine, now_s=self._clock.now_ms() // 1000)
        self._cold.publish(name, binding.lane)
        return binding

    def _unload(self, binding: Binding) -> "asyncio.Task[None] | None":
        """Unbind all names of the model and free it; None if requests still hold it and it is freed later."""
        for name in list(binding.names):
            self.registry.unbind(name)
        begun: list[asyncio.Task[None]] = []
        self.registry.when_unleased(binding, lambda: begun.append(self._free(binding.engine)))
        return begun[0] if begun else None

    def _free_if_unused(self, source: ModelSource) -> None:
        """Free a freshly loaded model whose names have been rebound in the meantime."""
        engine = self._loading.engine(source)
        if engine and not self._swaps[source] and not self.registry.is_used(engine):
            self._free(engine)

    def _free(self, engine: InferenceEngine) -> "asyncio.Task[None]":
        self.supervisor.forget(engine)
        self._forget_caches(engine)
        return self._loading.unload(engine)

    def _forget_caches(self, engine: InferenceEngine) -> None:
        self._on_unload(engine)

    def _reclaim(self, missing_bytes: int) -> int:
        """Evict cache entries, then idle models, least recently used first; the bytes still missing."""
        missing_bytes -= self._loading.unloading_bytes
        if missing_bytes > 0:
            missing_bytes -= self._shrink_cache(missing_bytes)
        for binding in sorted(self.resident(), key=lambda each: each.last_use):
            if missing_bytes > 0 and self._is_idle(binding):
                missing_bytes -= binding.engine.info.weight_bytes
                self._unload(binding)
        return missing_bytes

    def _is_idle(self, binding: Binding) -> bool:
        waiting = chain(binding.lane.counts, (self._asking[name] for name in binding.names))
        swapped_in = any(self._loading.engine(source) is binding.engine for source in +self._swaps)
        return bool(binding.names) and not (binding.leases or any(waiting) or swapped_in)

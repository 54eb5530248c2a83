"""The composition root: the one place that knows which adapters a server is made of."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from turnlog.adapters.engine_process.texts import RENDER_SECONDS
from turnlog.adapters.eventstore.journal import SqliteEventJournal
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.reader import SqliteEventReader
from turnlog.adapters.eventstore.store import open_memory, open_sqlite
from turnlog.adapters.keys import KeyFile, KeyRing
from turnlog.adapters.openai.chat.chunks import ChunkFramer
from turnlog.adapters.openai.frames import Framer, framed
from turnlog.adapters.owner_queue import OwnerQueue
from turnlog.adapters.system import SystemClock, SystemIds, spread
from turnlog.app.access import Access
from turnlog.app.audit.reading import Audit
from turnlog.app.http.service import Service
from turnlog.app.models import Models
from turnlog.app.models.idle import IdleSweeper
from turnlog.app.models.memory import Memory
from turnlog.app.operations.health import Health
from turnlog.app.operations.hooks import Hooks
from turnlog.app.operations.measured_journal import MeasuredJournal
from turnlog.app.operations.metrics import Metrics, PoolSize, Sources
from turnlog.app.prefix_cache import CachePool, PrefixCache
from turnlog.app.prefix_cache.prints import KeyPrints
from turnlog.app.replay import Replays
from turnlog.app.server.engines import declared_defaults, memory_budget_bytes
from turnlog.app.settings import Settings, idle_delay_s, most_waiting, most_waiting_bytes
from turnlog.app.turns.accept import Turns
from turnlog.app.turns.background import Background
from turnlog.app.turns.cancellation import Cancellation
from turnlog.app.turns.chains import Chains
from turnlog.app.turns.deletion import Deletion
from turnlog.app.turns.expiry import sweep
from turnlog.app.turns.idempotency import IdempotencyKeys
from turnlog.app.turns.in_flight import MOST_BYTES
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.metadata import MetadataChanges
from turnlog.app.turns.pending import PendingWrites
from turnlog.app.turns.persistence import PendingAppends, Persistence
from turnlog.app.turns.preparation import Preparation
from turnlog.app.turns.quotas import Quotas
from turnlog.app.turns.recovery import recover
from turnlog.app.turns.retrieval import Retrieval
from turnlog.app.turns.run import Limits
from turnlog.app.turns.stored_streams import StoredStreams
from turnlog.domain.budgets import SharedBudget
from turnlog.domain.events import ResponseCreated
from turnlog.domain.ports import Clock, EventJournal, JournalLoad, ModelSource
from turnlog.domain.ports import Framer as FramerPort

log = logging.getLogger("turnlog")

_PLAN_THREADS = 16
"""Most of them wait for a text process."""


def assemble(
    settings: Settings,
    sources: Mapping[str, ModelSource],
    resources: ExitStack,
    wrap_journal: Callable[[EventJournal], EventJournal] = lambda journal: journal,
) -> Service:
    """Wire a service of these models and the store the settings name. Call it on the event loop.

    Args:
        resources: closes what was opened, in the right order, when it is left.
        wrap_journal: puts something between the turns and their journal, such as a fault.

    Raises:
        StorageError: the store cannot be opened, or its keys cannot be read.
    """
    lock = _lock(settings, resources)
    journal, reader = _store(settings, resources)
    clock = SystemClock()
    live = LiveTurns()
    pending: PendingAppends = PendingWrites(live.owner_of)
    slow_work = _slow_work(resources)
    retrieval = Retrieval(reader, live, pending, clock, in_turn=slow_work.submit)
    access = Access(KeyRing(key_file(settings)), lock.token if lock else None)
    models, prefix_cache, idle = _model_floor(settings, sources, resources, clock, access)
    metrics = _metrics(models, prefix_cache, pending, journal, clock)
    audit = Audit(reader, retrieval, clock)
    in_flight = SharedBudget("bytes_in_flight", MOST_BYTES, lambda: access.is_shared)
    metrics.show(*reader.budgets, *models.budgets, slow_work.threads, slow_work.seconds, RENDER_SECONDS)
    metrics.show(in_flight, retrieval.places.budget, audit.told_bytes)
    measured = MeasuredJournal(wrap_journal(journal), metrics)
    persistence = Persistence(measured, pending, models.registry, live, clock)
    preparation = Preparation(
        models=models,
        chains=Chains(retrieval, pending, clock, max_length=settings.max_chain_length),
        retrieval=retrieval,
        prefix_cache=prefix_cache,
        in_turn=slow_work.submit,
        boot_id=str(uuid.uuid4()),
    )
    turns = Turns(
        preparation=preparation,
        live=live,
        persistence=persistence,
        load=journal,
        clock=clock,
        ids=SystemIds(clock),
        new_framer=_framer_of,
        limits=Limits(settings.token_timeout_s, settings.turn_timeout_s),
        hooks=Hooks(metrics, idle),
        strict=settings.durability == "strict",
        idempotency_grace_s=settings.idempotency_grace_s,
    )
    background = Background(turns, live, measured, reader, Framer)
    cancellation = Cancellation(live, background)
    return Service(
        models=models,
        replays=Replays(turns, models),
        metrics=metrics,
        turns=turns,
        background=background,
        cancellation=cancellation,
        deletion=Deletion(
            cancellation=cancellation,
            log=reader,
            eraser=journal,
            live=live,
            open_ids=lambda: persistence.open_ids,
            clock=clock,
        ),
        metadata=MetadataChanges(journal, live, lambda: persistence.open_ids, clock),
        retrieval=retrieval,
        streams=StoredStreams(retrieval, framed, in_flight, slow_work.submit),
        in_flight=in_flight,
        idempotency_keys=IdempotencyKeys(retrieval, live, clock),
        audit=audit,
        health=Health(models, reader, journal, lambda: turns.shutting_down),
        access=access,
        quotas=_quotas(settings, live, access, models),
        heartbeat_s=settings.heartbeat_s,
        chat_store=settings.chat_store,
        recover=partial(recover, journal, reader, clock, background.restore, metrics.turn_lost),
        tidy=prefix_cache.sweep,
        sweep=partial(sweep, journal, persistence, clock),
        copier=journal,
        in_turn=slow_work.submit,
        interrupt=partial(_interrupt, reader, slow_work),
        announce=lock.describe if lock else lambda _: None,
    )


def _interrupt(*queues: SqliteEventReader | OwnerQueue) -> None:
    for each in queues:
        each.interrupt()


def _framer_of(created: ResponseCreated) -> FramerPort:
    """The framer of a turn's stream, in the form of the surface that it came by."""
    return ChunkFramer() if created.surface == "chat" else Framer()


def _store(settings: Settings, resources: ExitStack) -> tuple[SqliteEventJournal, SqliteEventReader]:
    """The log: what writes it, and what reads it.

    Raises:
        StorageError: it cannot be opened.
    """
    if settings.in_memory:
        log.warning("The log is in memory and will be lost when this server stops.")
        journal, reader = open_memory(max_queued_bytes=settings.max_queued_bytes)
    else:
        journal, reader = open_sqlite(settings.db, max_queued_bytes=settings.max_queued_bytes)
    resources.callback(journal.close)
    resources.callback(reader.close)
    resources.callback(reader.interrupt)
    return journal, reader


def _slow_work(resources: ExitStack) -> OwnerQueue:
    """Where long bodies are decoded, long stories folded and turns planned: owners take turns."""
    queue = OwnerQueue("plan", _PLAN_THREADS)
    resources.callback(queue.close)
    resources.callback(queue.interrupt)
    return queue


def _quotas(settings: Settings, live: LiveTurns, access: Access, models: Models) -> Quotas:
    """What each owner may have running, queued and streaming, while there are keys."""
    return Quotas(
        live,
        in_force=lambda: access.keys_in_use,
        retry_after_s=models.retry_after_s,
        max_queued=settings.max_queued_turns_per_owner,
        max_streams=settings.max_streams_per_owner,
        max_websockets=settings.max_websockets_per_owner,
    )


def _model_floor(
    settings: Settings,
    sources: Mapping[str, ModelSource],
    resources: ExitStack,
    clock: Clock,
    access: Access,
) -> tuple[Models, PrefixCache, IdleSweeper]:
    """The models with their memory budget, the prefix cache within it, and the idle sweeper."""
    idle = IdleSweeper(
        lambda: _release_memory(models), idle_delay_s(settings), asyncio.get_running_loop().call_later
    )
    resources.callback(idle.close)
    budget_bytes = memory_budget_bytes(settings)
    models = Models(
        sources,
        sampling=declared_defaults(settings, sources),
        max_waiting=most_waiting(settings),
        max_waiting_bytes=most_waiting_bytes(settings),
        spread=spread,
        is_shared=lambda: access.is_shared,
        default=settings.default,
        memory=Memory(budget_bytes),
        wait_s=settings.memory_wait_s,
        idle=idle,
        clock=clock,
    )
    resources.callback(models.close)
    pool = CachePool(
        models.memory,
        most_entries=settings.warm_entries,
        most_bytes=budget_bytes // 4 if settings.warm_bytes is None else settings.warm_bytes,
    )
    models.give_up_first(pool.shrink, pool.forget)
    prefix_cache = PrefixCache(
        pool,
        KeyPrints(),
        clock,
        ttl_s=settings.warm_ttl_s,
        # The engines' pools were drained before, while these caches were still held.
        on_expiry=lambda: _release_memory(models),
    )
    return models, prefix_cache, idle


def _metrics(
    models: Models, prefix_cache: PrefixCache, pending: PendingAppends, load: JournalLoad, clock: Clock
) -> Metrics:
    """The metrics, and where those are looked up that are no counts of what has happened."""
    return Metrics(
        Sources(
            models=models.listed,
            pending=lambda: pending.sizes(now_ms=clock.now_ms()),
            load=load,
            memory=models.memory,
            warm=lambda: PoolSize(len(prefix_cache.pool), prefix_cache.pool.size_bytes),
        )
    )


def key_file(settings: Settings) -> KeyFile | None:
    """Where the keys of the log are kept; None if the log is in memory, which has none."""
    return None if settings.in_memory else KeyFile(settings.db)


def _lock(settings: Settings, resources: ExitStack) -> StoreLock | None:
    """The lock on the store's file; None if the store is in memory.

    Raises:
        StorageError: another server has it.
    """
    if settings.in_memory:
        return None
    lock = StoreLock(settings.db)
    resources.callback(lock.close)
    return lock


def _release_memory(models: Models) -> None:
    """Have every engine give back the memory that it holds for later use."""
    for binding in models.resident():
        binding.engine.release_memory()

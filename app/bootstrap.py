"""The composition root: the one place that knows which adapters a server is made of."""

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from adapters.eventstore.lock import StoreLock
from adapters.eventstore.store import open_memory, open_sqlite
from adapters.openai.frames import Framer
from adapters.scripted.engine import ScriptedEngine
from adapters.system import SystemClock, SystemIds
from app.chains import Chains
from app.health import Health
from app.live import LiveTurn
from app.models import Models, ServedModel
from app.persistence import NoRetains, PendingAppends, Persistence
from app.readings import Readings
from app.recovery import recover
from app.running import Limits
from app.service import Service
from app.settings import Settings, SettingsError, parse_models
from app.sweep import sweep
from app.turns import Turns
from domain.pending import PendingWrites
from domain.ports import EventJournal, InferenceEngine

log = logging.getLogger("turnlog")

DEFAULT_MODEL = "smollm2"
SCRIPTED_MODEL = "scripted"

Progress = Callable[[str, float], None]
"""Told what is being prepared and how much of it is done, 0 … 1."""


def pull_default_model(cache: Path, progress: Progress) -> Path:
    """The folder of the embedded default model below `cache`, made at the first call.

    Raises:
        EngineError: it could not be fetched or prepared; the sentence says what to do.
    """
    from adapters.mlx import smollm2

    return smollm2.prepare(cache / "models", progress)


def load_engines(settings: Settings, progress: Progress) -> dict[str, InferenceEngine]:
    """The engines that the settings ask for, by the name their model is served under.

    Raises:
        EngineError: a model or script cannot be used.
        SettingsError: the settings contradict each other.
    """
    declared = parse_models(settings.model)
    if settings.engine == "scripted":
        if settings.script is None or declared:
            raise SettingsError("--engine scripted plays a file: give it by --script FILE, and no --model")
        return {SCRIPTED_MODEL: ScriptedEngine.load(settings.script)}
    if settings.script is not None:
        raise SettingsError("--script is played by --engine scripted only")
    # Late, because loading mlx takes a second that scripted servers and reading commands need not wait.
    from adapters.mlx.engine import MlxEngine
    from adapters.mlx.runtime import slow_because

    if reason := slow_because():
        log.warning("%s", reason)
    folders = declared or {DEFAULT_MODEL: pull_default_model(settings.cache, progress)}
    engines: dict[str, InferenceEngine] = {}
    with ExitStack() as undo:
        for name, folder in folders.items():
            progress(f"loading {name}", 0.0)
            engines[name] = engine = MlxEngine.load(folder)
            undo.callback(engine.close)
            progress(f"loading {name}", 1.0)
        undo.pop_all()
    return engines


def assemble(
    settings: Settings,
    engines: dict[str, InferenceEngine],
    resources: ExitStack,
    wrap_journal: Callable[[EventJournal], EventJournal] = lambda journal: journal,
) -> Service:
    """Wire a service of these engines and the store the settings name. Call it on the event loop.

    Args:
        resources: closes what was opened, in the right order, when it is left.
        wrap_journal: puts something between the turns and their journal, such as a fault.

    Raises:
        StorageError: the store cannot be opened.
    """
    for engine in engines.values():
        resources.callback(engine.close)
    lock = _lock(settings, resources)
    if lock:
        journal, reader = open_sqlite(settings.db, max_queued_bytes=settings.max_queued_bytes)
    else:
        log.warning("The log is kept in memory: nothing of it will be there after this server ends.")
        journal, reader = open_memory(max_queued_bytes=settings.max_queued_bytes)
    resources.callback(journal.close)
    resources.callback(reader.close)
    clock = SystemClock()
    live: dict[str, LiveTurn] = {}
    pending: PendingAppends = PendingWrites()
    models = Models(
        ServedModel(name, engine, instance_id=number, registered_s=int(time.time()))
        for number, (name, engine) in enumerate(engines.items(), start=1)
    )
    turns = Turns(
        models=models,
        chains=Chains(reader, live, pending, clock, max_length=settings.max_chain_length),
        live=live,
        persistence=Persistence(wrap_journal(journal), pending, NoRetains(), live, clock),
        reader=reader,
        load=journal,
        clock=clock,
        ids=SystemIds(clock),
        new_framer=Framer,
        boot_id=str(uuid.uuid4()),
        limits=Limits(settings.token_timeout_s, settings.turn_timeout_s),
        strict=settings.durability == "strict",
    )
    return Service(
        models=models,
        turns=turns,
        readings=Readings(reader, live, pending, clock),
        health=Health(models, reader, journal),
        heartbeat_s=settings.heartbeat_s,
        recover=partial(recover, journal, reader, clock),
        sweep=partial(sweep, journal, live, clock),
        announce=lock.describe if lock else lambda _: None,
    )


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

"""Loads models one at a time, beside the running turns, within the memory budget (R-050 … R-055, D-29)."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock
from typing import Protocol

from msgspec import Struct

from turnlog.app.models.gate import Gate
from turnlog.app.models.memory import Memory, MemoryReservation
from turnlog.app.models.waiting import acquired
from turnlog.domain.errors import ModelUnavailableError
from turnlog.domain.ports import Clock, InferenceEngine, ModelSource

log = logging.getLogger("turnlog")

KEPT_RECORDS = 100

Loaded = Callable[[InferenceEngine], None]
"""Called with an engine in the same step in which it is loaded, before anything else can happen to it."""


class Suspends(Protocol):
    """Suspends the clearing of engines' memory pools while a model is being loaded (R-051)."""

    def suspended(self) -> AbstractContextManager[None]:
        """Nothing is cleared until the context is left."""


class LoadRecord(Struct, frozen=True):
    """The record of one load; times are Unix milliseconds, without the wait for other loads (R-055).

    `label` is what triggered it: "responses" (R-052), "operator", or "restart" after a crash.
    """

    label: str
    model: str
    started_ms: int
    ended_ms: int
    error: str | None

    @property
    def ok(self) -> bool:
        """Whether the model was loaded."""
        return self.error is None


class Loading:
    """The engines in memory, by their source.

    Args:
        wait_s: how long a load waits for memory before it is refused.
    """

    def __init__(self, memory: Memory, gate: Gate, idle: Suspends, clock: Clock, *, wait_s: float) -> None:
        self._memory = memory
        self._gate = gate
        self._idle = idle
        self._clock = clock
        self._wait_s = wait_s
        self._one_at_a_time = asyncio.Lock()
        self._under_way: dict[ModelSource, asyncio.Task[None]] = {}
        self._engines: dict[ModelSource, InferenceEngine] = {}
        self._reservations: dict[InferenceEngine, MemoryReservation] = {}
        self._unloads: set[asyncio.Task[None]] = set()
        self._door = Lock()
        self._closed = False
        self.records: deque[LoadRecord] = deque(maxlen=KEPT_RECORDS)

    def engine(self, source: ModelSource) -> InferenceEngine | None:
        """The engine that was loaded from `source`, unless it is being unloaded."""
        return self._engines.get(source)

    def is_loading(self, source: ModelSource) -> bool:
        """Whether a load of `source` is in progress or queued."""
        return source in self._under_way

    @property
    def unloading_bytes(self) -> int:
        """Memory of engines being unloaded, which will be free without further action."""
        kept = set(self._engines.values())
        return sum(
            reservation.count_bytes
            for engine, reservation in self._reservations.items()
            if engine not in kept
        )

    def put(self, source: ModelSource, engine: InferenceEngine) -> None:
        """Take over an engine that is already in memory."""
        reservation = self._memory.take("weights", engine.info.weight_bytes)
        assert reservation, "an engine in memory fits the budget"
        self._engines[source], self._reservations[engine] = engine, reservation

    async def load(self, source: ModelSource, model: str, *, label: str, loaded: Loaded) -> None:
        """Load `source` into memory; concurrent requests share the load and its failure.

        Args:
            model, label: the requested name and what triggered the load, for the record.
            loaded: called with the engine in the same step in which it is loaded.

        Raises:
            EngineError: it cannot be loaded.
            ModelUnavailableError: there was no memory for it in time.
        """
        task = self._under_way.get(source)
        if task is None:
            task = asyncio.create_task(self._load(source, model, label, loaded))
            self._under_way[source] = task
        # Cancelling one request must not cancel the load for the others.
        await asyncio.shield(task)

    async def _load(self, source: ModelSource, model: str, label: str, loaded: Loaded) -> None:
        try:
            with self._idle.suspended():
                async with self._one_at_a_time:
                    loaded(await self._recorded(model, label, lambda: self._read(source, model)))
        finally:
            # In this same step: a waiter that found a finished load here would retry forever.
            del self._under_way[source]

    async def _recorded(
        self, model: str, label: str, read: Callable[[], Awaitable[InferenceEngine]]
    ) -> InferenceEngine:
        started_ms = self._clock.now_ms()
        error: str | None = None
        try:
            return await read()
        except BaseException as failure:
            error = str(failure) or type(failure).__name__
            raise
        finally:
            self.records.append(LoadRecord(label, model, started_ms, self._clock.now_ms(), error))
            log.info("[models] loading %s %s", model, f"failed: {error}" if error else "is done")

    async def _read(self, source: ModelSource, model: str) -> InferenceEngine:
        reservation = await self._room(source.weight_bytes, model)
        try:
            engine = await asyncio.to_thread(self._load_unless_closed, source)
        except BaseException:
            reservation.release()
            raise
        reservation.resize(engine.info.weight_bytes)
        self._engines[source], self._reservations[engine] = engine, reservation
        return engine

    def _load_unless_closed(self, source: ModelSource) -> InferenceEngine:
        engine = source.load()
        with self._door:
            if not self._closed:
                return engine
        engine.close()
        raise ModelUnavailableError("The server is shutting down.")

    async def _room(self, count_bytes: int, model: str) -> MemoryReservation:
        """Memory for a model. New turns are blocked only if the end of the running ones makes room for it.

        Otherwise a model must become idle first, and its queued turns must not wait for this load.
        """
        if reservation := self._memory.take("weights", count_bytes):
            return reservation
        held_up = self._memory.suffices_after_turns(count_bytes)
        gate_pass = self._gate.write(lambda: None) if held_up else None
        try:
            async with asyncio.timeout(self._wait_s):
                return await acquired(partial(self._memory.ask, "weights", count_bytes))
        except TimeoutError:
            raise ModelUnavailableError(
                f"No memory became free for the model '{model}' within {self._wait_s:g} s: it needs about "
                f"{count_bytes:,} bytes, and {max(0, self._memory.free_bytes):,.0f} are free. Retry later."
            ) from None
        finally:
            if gate_pass:
                gate_pass.release()

    async def replace(self, source: ModelSource, dead: InferenceEngine, model: str) -> InferenceEngine:
        """Load the model of a crashed engine again, in the memory that it had.

        Raises:
            EngineError: it cannot be loaded.
            ModelUnavailableError: the dead engine was unloaded meanwhile.
        """
        with self._idle.suspended():
            async with self._one_at_a_time:
                return await self._recorded(model, "restart", lambda: self._read_again(source, dead))

    async def _read_again(self, source: ModelSource, dead: InferenceEngine) -> InferenceEngine:
        engine = await asyncio.to_thread(self._load_unless_closed, source)
        if self._engines.get(source) is not dead:
            await asyncio.to_thread(engine.close)
            raise ModelUnavailableError("The model was unloaded while it was being reloaded.")
        reservation = self._reservations.pop(dead)
        self._engines[source], self._reservations[engine] = engine, reservation
        reservation.resize(engine.info.weight_bytes)
        # Only now that the new engine has taken over what the old one's processes share with it.
        self._close_beside(dead)
        return engine

    def is_dead(self, engine: InferenceEngine) -> bool:
        """Whether the engine has crashed."""
        return engine.crashed.done()

    def unload(self, engine: InferenceEngine) -> "asyncio.Task[None]":
        """Free an engine on which nothing runs. Its memory is free when the task is done."""
        source = next(source for source, each in self._engines.items() if each is engine)
        del self._engines[source]
        return self._close_beside(engine)

    def _close_beside(self, engine: InferenceEngine) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._close(engine))
        self._unloads.add(task)
        task.add_done_callback(self._unloads.discard)
        return task

    async def _close(self, engine: InferenceEngine) -> None:
        try:
            await asyncio.to_thread(engine.close)
        finally:
            if reservation := self._reservations.pop(engine, None):
                reservation.release()

    def close(self) -> None:
        """Close every engine; one still being loaded is closed as soon as it is loaded."""
        with self._door:
            self._closed = True
        for engine in self._reservations:
            engine.close()

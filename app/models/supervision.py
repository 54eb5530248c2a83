"""Reloads the model of a crashed engine under the same binding, so that turns can wait for it."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from turnlog.app.models.crashes import MOST_CRASHES, WINDOW_S, Crashes
from turnlog.app.models.loading import Loading
from turnlog.app.models.registry import Binding, Registry
from turnlog.domain.errors import EngineError, ModelUnavailableError
from turnlog.domain.ports import Clock, Crash, InferenceEngine, ModelSource

log = logging.getLogger("turnlog")


class Outage:
    """The time from a crash to the next load. `error` is set if the model will not be reloaded."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: str | None = None

    def end(self, error: str | None = None) -> None:
        """The model is loaded again, or `error` says why it will not be."""
        self.error = error
        self.over.set_result(None)


class Supervisor:
    """Watches the engines in memory. Event loop only.

    Args:
        on_crash: called with a crashed engine, so that no cache entry of it is kept.
    """

    def __init__(
        self,
        loading: Loading,
        registry: Registry,
        clock: Clock,
        on_crash: Callable[[InferenceEngine], None],
    ) -> None:
        self._loading = loading
        self._registry = registry
        self._clock = clock
        self._on_crash = on_crash
        self._crashes: defaultdict[ModelSource, Crashes] = defaultdict(Crashes)
        self._given_up: dict[ModelSource, str] = {}
        self._outages: dict[Binding, Outage] = {}
        self._watched: dict[Binding, InferenceEngine] = {}
        self._restarts: set[asyncio.Task[None]] = set()

    def crashes(self, source: ModelSource) -> Crashes:
        """The crashes of a model."""
        return self._crashes[source]

    def given_up(self, source: ModelSource) -> str | None:
        """Why only an operator can load the model again; None if that is not so."""
        return self._given_up.get(source)

    def is_down(self, binding: Binding) -> bool:
        """Whether the model has crashed and is not loaded again yet."""
        return binding in self._outages

    def forgive(self, source: ModelSource) -> None:
        """Forget the model's failures: an operator requested it."""
        self._given_up.pop(source, None)
        self._crashes[source].forgive()

    def watch(self, binding: Binding, source: ModelSource) -> None:
        """Reload the model of `binding` when it crashes; no effect if it is already watched."""
        engine, loop = binding.engine, asyncio.get_running_loop()
        if self._watched.get(binding) is engine:
            return
        self._watched[binding] = engine

        def crashed(crash: Future[Crash]) -> None:
            # The loop may be closed by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._crashed, binding, source, engine, crash.result())

        engine.crashed.add_done_callback(crashed)

    async def until_up(self, binding: Binding) -> None:
        """Wait while the model is being reloaded.

        Raises:
            ModelUnavailableError: it will not be reloaded.
        """
        while outage := self._outages.get(binding):
            await asyncio.shield(outage.over)
            if outage.error:
                raise ModelUnavailableError(outage.error)

    def forget(self, engine: InferenceEngine) -> None:
        """Stop watching an engine that is being unloaded."""
        for binding in [each for each, watched in self._watched.items() if watched is engine]:
            del self._watched[binding]

    def close(self) -> None:
        """Stop all reloads."""
        for task in self._restarts:
            task.cancel()

    def _crashed(self, binding: Binding, source: ModelSource, engine: InferenceEngine, crash: Crash) -> None:
        if self._watched.get(binding) is not engine:
            return
        names = ", ".join(sorted(binding.names)) or "a model that is being unloaded"
        log.error(
            "[models] the engine of %s crashed: %s%s",
            names,
            crash.reason,
            f"; last output:\n{crash.last_words}" if crash.last_words else "",
        )
        self._on_crash(engine)
        crashes, now_ms = self._crashes[source], self._clock.now_ms()
        crashes.blame(crash.lone_prompt, at_ms=now_ms)
        pause_s = crashes.record(crash.reason, at_ms=now_ms)
        self._outages[binding] = Outage()
        task = asyncio.create_task(self._restart(binding, source, pause_s))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _restart(self, binding: Binding, source: ModelSource, pause_s: float | None) -> None:
        error: str | None = None
        try:
            while binding.names:
                if pause_s is None:
                    error = self._give_up(binding, source)
                    return
                await asyncio.sleep(pause_s)
                pause_s = await self._load_again(binding, source)
                if not self._loading.is_dead(binding.engine):
                    return
            error = "The model was unloaded after its engine crashed."
        finally:
            self._outages.pop(binding).end(error)

    async def _load_again(self, binding: Binding, source: ModelSource) -> float | None:
        """Replace a dead engine by a new one; the pause before the next try if that failed."""
        try:
            engine = await self._loading.replace(source, binding.engine, min(binding.names))
        except (EngineError, ModelUnavailableError) as error:
            return self._crashes[source].record(error.message, at_ms=self._clock.now_ms())
        self._registry.revive(binding, engine)
        self.watch(binding, source)
        return 0.0

    def _give_up(self, binding: Binding, source: ModelSource) -> str:
        last, name = self._crashes[source].last, min(binding.names)
        assert last
        error = (
            f"The engine of model '{name}' crashed {MOST_CRASHES} times within {WINDOW_S / 60:.0f} minutes, "
            f"most recently: {last.reason}. It stays unloaded until an operator loads it."
        )
        log.error("[models] %s", error)
        self._given_up[source] = error
        for each in list(binding.names):
            self._registry.unbind(each)
        self.forget(binding.engine)
        self._loading.unload(binding.engine)
        return error

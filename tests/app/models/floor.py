"""A model floor in virtual time, without a store or threads: what loads goes on when a test says so."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar

from tests.fakes.clock import VirtualClock, VirtualLoop
from tests.fakes.engine import PuppetEngine
from turnlog.app.models import Admission, Models
from turnlog.app.models.memory import Memory, MemoryReservation
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.errors import EngineError, ResponsesError
from turnlog.domain.ports import InferenceEngine, ModelSource

WAIT_S = 60.0
"""How long a load or a turn waits for memory."""

Given = TypeVar("Given")
_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class FakeSource:
    """A `ModelSource` that makes a new engine at each load, or fails with `error`.

    `engines` are all it has made, `loads` how often it was tried.
    """

    def __init__(
        self, name: str, *, weight_bytes: int = 0, concurrency: int = 1, context_window: int | None = None
    ) -> None:
        self.name = name
        self.weight_bytes = weight_bytes
        self.defaults = ModelDefaults()
        self.error: str | None = None
        self.engines: list[PuppetEngine] = []
        self.loads = 0
        self._concurrency = concurrency
        self._context_window = context_window

    def load(self) -> InferenceEngine:
        """Make an engine."""
        self.loads += 1
        if self.error is not None:
            raise EngineError(self.error)
        engine = PuppetEngine(
            self.name,
            concurrency=self._concurrency,
            weight_bytes=self.weight_bytes,
            context_window=self._context_window,
        )
        self.engines.append(engine)
        return engine

    @property
    def engine(self) -> PuppetEngine:
        """The one it made last."""
        return self.engines[-1]


class Threads(ThreadPoolExecutor):
    """What would run on threads, loads and closes, runs at once, or one by one if it is `held`."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self._jobs: deque[tuple[Callable[[], None], tuple[object, ...]]] = deque()

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Result]:
        done: Future[_Result] = Future()

        def job() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:
                done.set_exception(error)

        self._jobs.append((job, getattr(fn, "args", ())))
        if not self.held:
            self.go_on()
        return done

    def __len__(self) -> int:
        return len(self._jobs)

    def go_on(self) -> None:
        """Run what has waited longest."""
        job, _ = self._jobs.popleft()
        job()

    @property
    def reading(self) -> list[FakeSource]:
        """What is being loaded."""
        return [each for _, args in self._jobs for each in args if isinstance(each, FakeSource)]


class Suspensions:
    """What must not clear memory pools during a load; `told` says when it may not and when it may again."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Note it."""
        self.told.append("suspended")
        try:
            yield
        finally:
            self.told.append("resumed")


class Floor:
    """The models of a server, nothing of them loaded, in a loop of their own.

    Everything that can be done is done before a method returns.
    """

    def __init__(
        self,
        declared: Mapping[str, ModelSource],
        *,
        budget_bytes: int | None = None,
        max_waiting: int | None = None,
    ) -> None:
        self.loop = VirtualLoop()
        self.threads = Threads()
        self.loop.set_default_executor(self.threads)
        self._at_once = False
        self._begun: list[Task[Any]] = []  # the loop itself would forget who waits
        self.idle = Suspensions()
        self.models = Models(
            declared,
            max_waiting=max_waiting,
            memory=Memory(budget_bytes),
            wait_s=WAIT_S,
            idle=self.idle,
            clock=VirtualClock(self.loop),
        )

    def run(self, seconds: float = 0.0) -> None:
        """Let so much time pass."""
        if not self._at_once:
            self.loop.run_for(seconds)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is done inside happens before anything follows from it."""
        self._at_once = True
        yield
        self._at_once = False
        self.run()

    def tick(self) -> None:
        """One round of the loop: what can be done now, and nothing of what follows."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def do(self, call: Callable[[], Given]) -> Given:
        """Call something on the loop, and see what follows from it through.

        Raises:
            Exception: whatever it raises.
        """

        async def called() -> Given:
            return call()

        return self.begin(called()).result()

    def begin(self, work: Coroutine[Any, Any, Given]) -> "Task[Given]":
        """Begin something that may have to wait."""
        task = Task(self.loop.create_task(work), self)
        self._begun.append(task)
        self.run()
        return task

    def admitted(self, name: str, tokens: int = 0, *, yields: bool = False) -> "Request":
        """A request that does nothing yet but to be admitted.

        Raises:
            ResponsesError: it is not.
        """
        return Request(self, name, tokens, yields=yields)

    def request(self, name: str, tokens: int = 0, *, yields: bool = False) -> "Request":
        """A request that goes on until it runs, as far as it can."""
        request = self.admitted(name, tokens, yields=yields)
        request.take_lease()
        request.sit()
        return request

    def go_on(self) -> None:
        """Let the oldest load or close on the threads go on."""
        self.threads.go_on()
        self.run()

    def close(self) -> None:
        """Cut short what is left, and end the loop; it may have had nothing to complain about."""
        self.threads.held = False
        for _ in range(len(self.threads)):
            self.go_on()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.run()
        self.loop.close()
        assert self.loop.complaints == []


class Task(Generic[Given]):
    """Something under way on a floor."""

    def __init__(self, task: "asyncio.Task[Given]", floor: Floor) -> None:
        self._task = task
        self._floor = floor
        # Whoever is cut short is not asked what came of it.
        task.add_done_callback(lambda over: over.cancelled() or over.exception())

    @property
    def is_done(self) -> bool:
        """Whether it is over, by itself or because it was cut short."""
        return self._task.done()

    def result(self) -> Given:
        """What came of it.

        Raises:
            Exception: what it raised.
        """
        return self._task.result()

    @property
    def error(self) -> BaseException | None:
        """What it raised, if it did, and was not cut short."""
        return None if self._task.cancelled() else self._task.exception()

    def cancel(self) -> None:
        """Cut it short."""
        self._task.cancel()
        self._floor.run()


class Request:
    """One request, from its admission on; `where` says how far it has come, or the code of its refusal.

    It does with its `Admission` what `app.turns.accept` and `app.turns.run` do.
    """

    def __init__(self, floor: Floor, name: str, tokens: int, *, yields: bool) -> None:
        self.name = name
        self.tokens = tokens
        self.yields = yields
        self.where = "admitted"
        self.reservation: MemoryReservation | None = None
        self._floor = floor
        self.admission: Admission = floor.do(lambda: floor.models.admit(name, yields=yields))
        self._may = {step: floor.loop.create_future() for step in ("lease", "sit", "leave")}
        self._task = floor.begin(self._run())

    async def _run(self) -> None:
        try:
            await self._may["lease"]
            self.where = "loading"
            await self.admission.take_lease()
            self.where = "leased"
            await self._may["sit"]
            self.where = "queued"
            async with self._floor.models.acquire(self.admission, self.tokens) as self.reservation:
                self.where = "running"
                await self._may["leave"]
            self.where = "done"
        except ResponsesError as refusal:
            self.where = refusal.code
        finally:
            self.admission.release()

    def take_lease(self) -> None:
        """Ask for the model."""
        self._go_on("lease")

    def sit(self) -> None:
        """Ask for a slot, once it has the model."""
        self._go_on("sit")

    def release(self) -> None:
        """Come to its end, once it has a slot."""
        self._go_on("leave")

    def _go_on(self, step: str) -> None:
        if not self._may[step].done():
            self._may[step].set_result(None)
        self._floor.run()

    def cut_short(self) -> None:
        """Its client leaves, wherever it is."""
        if not self.is_over:
            self.where = "cut short"
            self._task.cancel()

    @property
    def is_over(self) -> bool:
        """Whether it holds nothing any more."""
        return self._task.is_done

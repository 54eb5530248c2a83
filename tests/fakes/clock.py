"""Clocks for tests: one that stands still, and one whose time passes in an event loop that never waits."""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from tests.domain.stories import NOON_MS

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class StoppedClock:
    """A clock that stands still, at noon, until a test moves it."""

    def __init__(self, ms: int = NOON_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        """Where it stands."""
        return self.ms


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a number; `run_for` moves it from timer to timer.

    It has no threads: what would run on one runs at once. `complaints` is what the loop had to report
    because nobody else took care of it, such as an exception in a callback.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = self._until_s = now_s
        self.complaints: list[dict[str, Any]] = []
        super().__init__(_Unwaiting(self._idle))
        self.set_default_executor(_InPlace())
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def run_for(self, seconds: float = 0.0) -> None:
        """Do everything that is to be done within the next `seconds`; 0 is what can be done now."""
        self._until_s = self._now_s + seconds
        self.run_forever()

    def _idle(self, next_timer_s: float | None) -> None:
        """There is nothing to do until the next timer: go there, or to the end of this run."""
        left_s = self._until_s - self._now_s
        if next_timer_s is not None and next_timer_s < left_s:
            self._now_s += next_timer_s
            return
        self._now_s = self._until_s
        if next_timer_s is None or next_timer_s > left_s:
            self.stop()


class VirtualClock:
    """The wall clock of a `VirtualLoop`: it was noon when its time was 0."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return NOON_MS + round(self._loop.time() * 1000)


class _Unwaiting(selectors.SelectSelector):
    """A selector that says that it would have to wait, instead of waiting."""

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._idle(timeout)
        return super().select(0)


class _InPlace(ThreadPoolExecutor):
    """An executor without threads."""

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Result]:
        done: Future[_Result] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done

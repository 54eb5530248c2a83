"""Slow work on threads of its own: in turns by owner, within a time, and only as long as somebody wants it.

Work ends early when its future is cancelled, at its deadline, and when the server stops: long work asks
between two steps whether to go on (`check_wanted`, `still_wanted`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from turnlog.domain.budgets import Budget
from turnlog.domain.errors import ReadTimeoutError, ResponsesError, ShuttingDownError

_Result = TypeVar("_Result")
_here = threading.local()


class _Job(NamedTuple):
    future: Future[Any]
    work: Callable[[], Any]


class OwnerQueue:
    """Threads that serve the owners in turn, one job of each at a time in order of arrival.

    An owner never has more than one thread, and waits behind at most one job of each other owner.

    Args:
        deadline_s: how long a job may take from its start; None for as long as it takes.
    """

    def __init__(self, name: str, threads: int, deadline_s: float | None = None) -> None:
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        # In the order of turns; an owner without a waiting job has no line.
        self._lines: dict[Hashable, deque[_Job]] = {}
        self._served: set[Hashable] = set()
        self._running: set[_Running] = set()
        self._closed = False
        self.seconds = Budget(f"{name}_seconds", deadline_s or float("inf"), self._longest_s)
        self.threads = Budget(f"{name}_threads", threads, lambda: len(self._running))
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, owner: Hashable, work: Callable[[], _Result]) -> Future[_Result]:
        """What `work` returns or raises. Cancelling it works at any time, and ends the work.

        It fails with `ReadTimeoutError` at the deadline, and with `ShuttingDownError` when it is interrupted.
        """
        future: Future[_Result] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the queue was closed")
            if len(self._running) == len(self._threads):
                self.threads.reach()
            self._lines.setdefault(owner, deque()).append(_Job(future, work))
            self._changed.notify()
        return future

    def interrupt(self) -> None:
        """End what waits and what runs, because the server stops; later jobs are served."""
        with self._changed:
            waiting = [job for line in self._lines.values() for job in line]
            self._lines.clear()
            for running in self._running:
                running.is_interrupted = True
        for job in waiting:
            _settle(job.future, ShuttingDownError())

    def close(self) -> None:
        """Serve what waits, then stop the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (taken := self._take()) is not None:
            owner, job = taken
            running = _Running(job.future, self._deadline_s)
            with self._changed:
                self._running.add(running)
            _here.running = running
            try:
                outcome = running.outcome(job.work)
            finally:
                _here.running = None
                with self._changed:
                    self._running.discard(running)
                    self._served.discard(owner)
                    self._changed.notify_all()
            if isinstance(outcome, ReadTimeoutError):
                self.seconds.reach()
            _settle(job.future, outcome)
            # Neither a result nor a request is kept while the next job is waited for.
            del taken, job, running, outcome

    def _take(self) -> tuple[Hashable, _Job] | None:
        """The next job of the owner whose turn it is; None when the queue is closed and empty."""
        with self._changed:
            while True:
                for owner in [each for each in self._lines if each not in self._served]:
                    if job := self._next_of(owner):
                        self._served.add(owner)
                        return owner, job
                if self._closed and not self._lines:
                    return None
                self._changed.wait()

    def _next_of(self, owner: Hashable) -> _Job | None:
        """The owner's first job that somebody still wants; its line goes behind all others."""
        line = self._lines.pop(owner)
        while line:
            job = line.popleft()
            if not job.future.cancelled():
                if line:
                    self._lines[owner] = line
                return job
        return None

    def _longest_s(self) -> float:
        now_s = time.monotonic()
        return max((now_s - running.began_s for running in list(self._running)), default=0.0)


class _Running:
    """Work that has begun."""

    def __init__(self, future: Future[Any], deadline_s: float | None) -> None:
        self._future = future
        self._deadline_s = deadline_s
        self.began_s = time.monotonic()
        self.is_interrupted = False

    def has_ended(self) -> bool:
        """Whether nobody wants it any more, or not for so long."""
        return self.is_interrupted or self._future.cancelled() or self._is_late()

    def outcome(self, work: Callable[[], Any]) -> Any:
        """What comes of it; an error is returned, to be raised by the future."""
        try:
            return _Value(work())
        except BaseException as error:
            if not self.has_ended():
                return error
        if self.is_interrupted or self._future.cancelled():
            return ShuttingDownError()  # which nobody hears of a cancelled one
        assert self._deadline_s is not None
        return ReadTimeoutError(self._deadline_s)

    def _is_late(self) -> bool:
        return self._deadline_s is not None and time.monotonic() - self.began_s > self._deadline_s


class _Value(NamedTuple):
    value: Any


def _settle(future: Future[Any], outcome: Any) -> None:
    """Resolve the future, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, _Value):
        future.set_result(outcome.value)
    else:
        future.set_exception(outcome)


class WorkEndedError(ResponsesError):
    """The work on this thread has ended early; its future says why."""


def still_wanted() -> Callable[[], bool]:
    """Asks whether the work on this thread is to go on; always, if it is on a thread of no queue."""
    running: _Running | None = getattr(_here, "running", None)
    return (lambda: not running.has_ended()) if running else (lambda: True)


def check_wanted() -> None:
    """For work to call between two steps.

    Raises:
        WorkEndedError: what runs on this thread has ended early.
    """
    if not still_wanted()():
        raise WorkEndedError("the work has ended early")

"""Reads on threads of their own: in turns by owner, within a time, and only as long as somebody wants them.

SQLite asks every few thousand steps whether to go on, so that a read ends in the midst of a statement: when
its future is cancelled, at its deadline, and when the server stops.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from turnlog.domain.budgets import Budget
from turnlog.domain.errors import ReadTimeoutError, ResponsesError, ShuttingDownError

_STEPS = 20_000
"""Steps of SQLite's machine between two questions: some milliseconds; each needs Python's lock."""

_Result = TypeVar("_Result")
_running = threading.local()


class _Read(NamedTuple):
    future: Future[Any]
    work: Callable[[], Any]


class ReadQueue:
    """Threads that serve the owners in turn, one read of each at a time in order of arrival.

    An owner never has more than one thread, and waits behind at most one read of each other owner.

    Args:
        deadline_s: how long a read may take from its start; None for as long as it takes.
    """

    def __init__(self, name: str, threads: int, deadline_s: float | None = None) -> None:
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        # In the order of turns; an owner without a waiting read has no line.
        self._lines: dict[Hashable, deque[_Read]] = {}
        self._served: set[Hashable] = set()
        self._running: set[_Reading] = set()
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
        """What `work` returns or raises. Cancelling it works at any time, and ends the read.

        It fails with `ReadTimeoutError` at the deadline, and with `ShuttingDownError` when it is interrupted.
        """
        future: Future[_Result] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the store was closed")
            if len(self._running) == len(self._threads):
                self.threads.reach()
            self._lines.setdefault(owner, deque()).append(_Read(future, work))
            self._changed.notify()
        return future

    def interrupt(self) -> None:
        """End the reads that wait and those that run, because the server stops; later ones are served."""
        with self._changed:
            waiting = [read for line in self._lines.values() for read in line]
            self._lines.clear()
            for reading in self._running:
                reading.is_interrupted = True
        for read in waiting:
            _settle(read.future, ShuttingDownError())

    def close(self) -> None:
        """Serve what waits, then stop the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (taken := self._take()) is not None:
            owner, read = taken
            reading = _Reading(read.future, self._deadline_s)
            with self._changed:
                self._running.add(reading)
            _running.reading = reading
            try:
                outcome = reading.outcome(read.work)
            finally:
                _running.reading = None
                with self._changed:
                    self._running.discard(reading)
                    self._served.discard(owner)
                    self._changed.notify_all()
            if isinstance(outcome, ReadTimeoutError):
                self.seconds.reach()
            _settle(read.future, outcome)
            # Neither a result nor a request is kept while the next read is waited for.
            del taken, read, reading, outcome

    def _take(self) -> tuple[Hashable, _Read] | None:
        """The next read of the owner whose turn it is; None when the queue is closed and empty."""
        with self._changed:
            while True:
                for owner in [each for each in self._lines if each not in self._served]:
                    if read := self._next_of(owner):
                        self._served.add(owner)
                        return owner, read
                if self._closed and not self._lines:
                    return None
                self._changed.wait()

    def _next_of(self, owner: Hashable) -> _Read | None:
        """The owner's first read that somebody still wants; its line goes behind all others."""
        line = self._lines.pop(owner)
        while line:
            read = line.popleft()
            if not read.future.cancelled():
                if line:
                    self._lines[owner] = line
                return read
        return None

    def _longest_s(self) -> float:
        now_s = time.monotonic()
        return max((now_s - reading.began_s for reading in list(self._running)), default=0.0)


class _Reading:
    """A read that runs."""

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


class ReadEndedError(ResponsesError):
    """The read that runs on this thread has ended; its future says why."""


def check_wanted() -> None:
    """For reads to call between two steps.

    Raises:
        ReadEndedError: the one on this thread has ended.
    """
    reading: _Reading | None = getattr(_running, "reading", None)
    if reading and reading.has_ended():
        raise ReadEndedError("the read has ended")


@contextmanager
def interruptible(connection: sqlite3.Connection) -> Iterator[None]:
    """Have SQLite give up a statement, as an error, when the read on this thread has ended."""
    reading: _Reading | None = getattr(_running, "reading", None)
    if reading is None:
        yield
        return
    connection.set_progress_handler(reading.has_ended, _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)

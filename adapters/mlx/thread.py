"""The one thread that computes, however many models there are: the batches of all take steps in turn."""

import gc
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, Queue
from threading import Lock, Thread
from time import monotonic
from typing import Protocol

from turnlog.adapters.mlx.runtime import mx, release_memory

_log = logging.getLogger(__name__)

Command = Callable[[], None]


class Steps(Protocol):
    """Work done step by step, such as the turns of one model. Only the engine thread touches it."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""

    @property
    def gather_s(self) -> float:
        """How long the next step should wait for more to do, in seconds; 0 if it should not."""

    def step(self) -> None:
        """Do one step. It handles its own errors, so that they affect no other work."""

    def close(self) -> None:
        """End it and free all its memory."""


class EngineThread:
    """Runs commands in order and, between them, steps of its works in turn.

    MLX objects must not be used by two threads at once; here there is only one.
    """

    def __init__(self) -> None:
        # `SimpleQueue` waits for ever if its timeout passes between its two looks (CPython 3.11).
        self._inbox: Queue[Command | None] = Queue()
        self._works: deque[Steps] = deque()
        self._closed = False
        self._door = Lock()
        self._busy_since_s: float | None = None
        self._thread = Thread(target=self._serve, name="mlx-engine", daemon=True)
        self._thread.start()

    def ask(self, command: Command) -> bool:
        """Have `command` run before the next step. Any thread; returns at once.

        Returns:
            Whether it will run; not after `close`.
        """
        with self._door:
            if not self._closed:
                self._inbox.put(command)
            return not self._closed

    @property
    def step_s(self) -> float:
        """How long the current command or step has been running; 0 while idle. Any thread."""
        since_s = self._busy_since_s
        return 0.0 if since_s is None else monotonic() - since_s

    def add(self, work: Steps) -> None:
        """Add a work; it gets steps whenever it is not idle."""
        self.ask(partial(self._works.append, work))

    def remove(self, work: Steps) -> None:
        """Close a work, free its memory and wait for that, which takes one step of another work at most."""
        removed: Future[None] = Future()
        if self.ask(partial(self._remove, work, removed)):
            removed.result()

    def close(self) -> None:
        """Close all work and end the thread; waits for both. Idempotent."""
        with self._door:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        self._thread.join()

    def _remove(self, work: Steps, removed: Future[None]) -> None:
        try:
            if work in self._works:
                self._works.remove(work)
                work.close()
                gc.collect()
                release_memory()
        finally:
            removed.set_result(None)

    def _serve(self) -> None:
        """The thread's main loop."""
        while (command := self._next()) is not None:
            self._busy_since_s = monotonic()
            try:
                command()
            except Exception:
                # The next turn can still be served.
                _log.exception("a command of the engine thread failed")
            self._busy_since_s = None
        while self._works:
            self._works.pop().close()
        # MLX aborts the process at its exit if a thread that computed leaves anything behind.
        del command
        gc.collect()
        mx.synchronize()
        mx.clear_cache()
        mx.clear_streams()

    def _next(self) -> Command | None:
        """The next command, else a step of the next work. Waits while there is nothing to compute, and
        briefly when every busy work is gathering turns.
        """
        busy = [work for work in self._works if not work.idle]
        wait_s = min((work.gather_s for work in busy), default=None)
        try:
            return self._inbox.get(block=wait_s != 0, timeout=wait_s)
        except Empty:
            return self._step_of_next

    def _step_of_next(self) -> None:
        self._works.rotate(-1)
        while self._works[-1].idle:
            self._works.rotate(-1)
        self._works[-1].step()

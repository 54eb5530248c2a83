"""Whether an engine process is alive, by what it answers and how long its steps take. No I/O, no clock."""

from typing import Final

from turnlog.adapters.engine_process.messages import Pong

TICK_S: Final = 0.5
"""How often the process is asked for a sign of life."""

SILENT_S: Final = 1.0
"""An answer that is so late is a problem: the process is stopped, or starved."""

SILENCE_LIMIT_S: Final = 10.0
"""After so long without an answer the process is ended."""

LONG_STEP_S: Final = 10.0
"""A step that takes longer is a problem, though steps of big models on slow processors take seconds."""

STEP_LIMIT_S: Final = 300.0
"""A step that takes longer is a hang, and the process is ended: a kernel or a lock never comes back."""


class Heartbeat:
    """The signs of life of one process. Times are those of a monotonic clock, in seconds.

    One thread asks and receives; any may read.
    """

    def __init__(self, now_s: float) -> None:
        self.memory_bytes = 0
        self._step_s = 0.0
        self._asked_s = now_s - TICK_S
        self._looked_s = now_s
        # Since when an answer is awaited.
        self._awaited_s: float | None = None

    def asks(self, now_s: float) -> bool:
        """Whether it is time to ask; then it counts as asked."""
        if self._awaited_s is not None and now_s - self._looked_s > 2 * TICK_S:
            # The server itself stood still: what the process said meanwhile is not read yet.
            self._awaited_s = now_s
        self._looked_s = now_s
        if now_s - self._asked_s < TICK_S:
            return False
        self._asked_s = now_s
        if self._awaited_s is not None:
            return False
        self._awaited_s = now_s
        return True

    def receive(self, pong: Pong) -> None:
        """The process has answered."""
        self._awaited_s = None
        self._step_s = pong.step_s
        self.memory_bytes = pong.memory_bytes

    def problem(self, now_s: float) -> str | None:
        """What is wrong, in a sentence; None while all is well."""
        silent_s = self._silent_s(now_s)
        if silent_s > SILENT_S:
            return f"The engine process has not responded for {silent_s:.0f} s"
        if self._step_s > LONG_STEP_S:
            return f"The engine has been running one step for {self._step_s:.0f} s"
        return None

    def verdict(self, now_s: float) -> str | None:
        """Why the process has to be ended, if it has to."""
        if self._silent_s(now_s) > SILENCE_LIMIT_S:
            return f"it did not answer for {SILENCE_LIMIT_S:g} s"
        if self._step_s > STEP_LIMIT_S:
            return f"it computed one step for more than {STEP_LIMIT_S:g} s"
        return None

    def _silent_s(self, now_s: float) -> float:
        return 0.0 if self._awaited_s is None else now_s - self._awaited_s

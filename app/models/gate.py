"""The gate between inference and the freeing of memory: a process-wide lock (R-053, R-054).

A running turn is a reader. A load that finds no room is a writer: while one waits, no new turn starts, so
that the memory of the running ones comes free instead of being taken again (docs/decisions/0009).
"""

from collections import deque
from collections.abc import Callable
from typing import Literal

Enter = Callable[[], None]
"""Called once, when the gate is passed; immediately if nothing blocks it."""


class Gate:
    """A read-write lock: any number of readers, or one writer. A waiting writer blocks new readers."""

    def __init__(self) -> None:
        self._inside: set[Pass] = set()
        self._writers: deque[Pass] = deque()
        self._readers: deque[Pass] = deque()

    def read(self, enter: Enter) -> "Pass":
        """Enter as a reader, together with others."""
        return self._queue(Pass(self, "read", enter), self._readers)

    def write(self, enter: Enter) -> "Pass":
        """Enter as the only one, once the last reader has left."""
        return self._queue(Pass(self, "write", enter), self._writers)

    def _queue(self, new: "Pass", queue: "deque[Pass]") -> "Pass":
        queue.append(new)
        self._open()
        return new

    def _open(self) -> None:
        """Admit the next writer if nobody is inside, or all readers if no writer is inside or waiting."""
        if any(each.kind == "write" for each in self._inside):
            return
        if self._writers:
            if not self._inside:
                self._let_in(self._writers.popleft())
            return
        while self._readers:
            self._let_in(self._readers.popleft())

    def _let_in(self, each: "Pass") -> None:
        self._inside.add(each)
        each.enter()

    def _leave(self, each: "Pass") -> None:
        self._inside.discard(each)
        for queue in (self._readers, self._writers):
            if each in queue:
                queue.remove(each)
        self._open()


class Pass:
    """One holder of the gate: waiting, inside, or released."""

    __slots__ = ("_gate", "enter", "kind")

    def __init__(self, gate: Gate, kind: Literal["read", "write"], enter: Enter) -> None:
        self._gate = gate
        self.kind = kind
        self.enter = enter

    def release(self) -> None:
        """Leave, or stop waiting; no effect the second time."""
        self._gate._leave(self)

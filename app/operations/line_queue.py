"""Log lines on their way to a file, a terminal or a pipe: whoever logs never waits for it.

A pipe that nobody reads takes 64 KiB and then stops its writer for ever; that must not be the event loop.
"""

import logging
import os
import time
from collections import deque
from threading import Condition, Thread
from typing import TextIO

log = logging.getLogger("turnlog")

MAX_BYTES = 4 * 1024 * 1024

_FULL_PAUSE_S = 0.05
_LAST_LINES_S = 1.0


class LineQueue:
    """A stream for `logging.StreamHandler` that writes to another from a thread of its own.

    What does not fit any more is dropped and counted; a line says how many once there is room again. Leaving
    it as a context waits a second for what is queued.

    Args:
        stream: has a file descriptor. It is written to directly, as the interpreter flushes its own streams
            at its end and must not wait for a lock that the thread holds.
        max_bytes: how much may be queued.
    """

    def __init__(self, stream: TextIO, max_bytes: int = MAX_BYTES) -> None:
        self._stream = stream
        self._descriptor = stream.fileno()
        self._encoding = stream.encoding or "utf-8"
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._queued_bytes = 0
        self._dropped = 0
        self._changed = Condition()
        Thread(target=self._write_all, name="log lines", daemon=True).start()

    def __enter__(self) -> "LineQueue":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._queued_bytes, _LAST_LINES_S)

    def write(self, text: str) -> int:
        """Queue a line, or drop it. Any thread; does not block."""
        line = text.encode(self._encoding, "backslashreplace")
        with self._changed:
            if self._queued_bytes + len(line) > self._max_bytes:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._queued_bytes += len(line)
                self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Nothing to do: what is queued is written as soon as it can be."""

    def isatty(self) -> bool:
        """Whether a person reads the lines."""
        return self._stream.isatty()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines.popleft()
            self._write(line)
            with self._changed:
                self._queued_bytes -= len(line)
                dropped = self._dropped if not self._lines else 0
                self._dropped -= dropped
                self._changed.notify_all()
            if dropped:
                log.warning("[log] %d lines were dropped: the output is blocked", dropped)

    def _write(self, line: bytes) -> None:
        while line:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:
                time.sleep(_FULL_PAUSE_S)  # the descriptor is shared with a program that wants no waits
            except OSError:
                return  # its reader is gone, or the disk is full; there is nowhere to say so

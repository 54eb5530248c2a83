"""Closing connections whose reader does not take what was written: HTTP and WebSocket alike (R-310)."""

import logging
from asyncio import AbstractEventLoop, Protocol, TimerHandle, Transport
from collections.abc import Callable

log = logging.getLogger("turnlog")

LEAST_TAKEN_BYTES = 16 * 1024
"""What a reader has to take of a full buffer within the drain limit, lest it count as stalled."""


class ReaderWatch(Protocol):
    """A part of a protocol: a reader that takes too little of a full buffer loses its connection.

    `was_cut_off` says that one has.
    """

    loop: AbstractEventLoop
    transport: Transport
    drain_limit_s: Callable[[], float]
    _drain: TimerHandle | None = None
    _untaken_bytes = 0
    was_cut_off = False

    def pause_writing(self) -> None:
        """The buffer is full: the reader has a while to take some of it."""
        super().pause_writing()
        self.watch_reader()

    def resume_writing(self) -> None:
        """The reader has taken what there was, or nearly."""
        super().resume_writing()
        self.stop_watching()

    def watch_reader(self) -> None:
        """Give the reader the drain limit to take some of what is written, from now on."""
        self.stop_watching()
        self._untaken_bytes = self.transport.get_write_buffer_size()
        if self._untaken_bytes:
            self._drain = self.loop.call_later(self.drain_limit_s(), self._judge_reader)

    def stop_watching(self) -> None:
        """The reader has taken enough."""
        if self._drain:
            self._drain.cancel()
            self._drain = None

    @property
    def is_watched(self) -> bool:
        """Whether the reader has something to take."""
        return self._drain is not None

    def on_taken(self) -> None:
        """The reader has taken some of it."""

    def _judge_reader(self) -> None:
        self._drain = None
        if self.transport.get_write_buffer_size() > max(0, self._untaken_bytes - LEAST_TAKEN_BYTES):
            log.warning("[http] closing a connection whose client stopped reading")
            self.was_cut_off = True
            self.transport.abort()
        else:
            self.on_taken()
            self.watch_reader()

"""Returns the engine's free memory to the system after a while without turns (R-375 … R-385).

Synchronous: it counts turns and decides when its timer fires. The event loop's timer is passed in.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

log = logging.getLogger("turnlog")


class Timer(Protocol):
    """A scheduled call, such as `asyncio.TimerHandle`; it keeps no process alive."""

    def cancel(self) -> None:
        """Cancel the call."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Calls back after so many seconds, as an event loop's `call_later` does."""


class IdleSweeper:
    """Drains the engine's memory pool once, `delay_s` after the last running turn has ended.

    Not thread-safe: call it, and let its timer fire, on one thread.

    Args:
        drain: returns the free memory; its exceptions are logged and otherwise ignored.
        delay_s: 0 disables the sweeper (R-381).
        call_later: the event loop's.
    """

    def __init__(self, drain: Callable[[], None], delay_s: float, call_later: CallLater) -> None:
        self._drain = drain
        self._delay_s = delay_s
        self._call_later = call_later
        self._under_way = 0
        self._owed = False  # whether a turn has ended since the last drain
        self._suspensions = 0
        self._timer: Timer | None = None
        self._closed = False

    def begin(self) -> None:
        """A turn is accepted, before it has its slot; cancels a scheduled drain (R-376, R-377)."""
        if self._delay_s:
            self._under_way += 1
            self._disarm()

    def end(self) -> None:
        """A turn has left its lane; once for each `begin`, and ignored without one (R-378, R-385)."""
        if self._under_way:
            self._under_way -= 1
            self._owed = True
            self._arm_if_idle()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Do not drain the pool inside the block, which may await: a load needs it (R-051, R-384).

        Blocks may overlap; when the last one exits, the delay of a due drain starts again if no turn is
        running. A load by itself makes no drain due (R-382).
        """
        if not self._delay_s:
            yield
            return
        self._suspensions += 1
        self._disarm()
        try:
            yield
        finally:
            self._suspensions -= 1
            self._arm_if_idle()

    def close(self) -> None:
        """Stop draining. Running turns are still counted."""
        self._closed = True
        self._disarm()

    def _arm_if_idle(self) -> None:
        if self._owed and not self._under_way and not self._suspensions:
            self._arm()

    def _arm(self) -> None:
        self._disarm()
        if not self._closed:
            self._timer = self._call_later(self._delay_s, self._fire)

    def _disarm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        """Check again: a timer that was already due may fire although it was cancelled (R-383)."""
        self._timer = None
        if self._under_way:
            return
        if self._suspensions:
            self._arm()
            return
        self._owed = False
        try:
            self._drain()
        except Exception:
            log.exception("[responses] could not release the engine's free memory")

"""A limit on silence that costs nothing while there is none: its timer stays, and looks when it fires."""

import asyncio
from collections.abc import Callable


class SilenceTimeout:
    """Calls `run_out` once `limit_s` seconds have passed without a `renew`. Event loop only.

    A stream renews its silence with every token, so a renewal sets no timer: the one that is set finds out
    when it fires how long it has to wait yet. None for `limit_s` is silence without end.
    """

    def __init__(self, limit_s: float | None, run_out: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._run_out = run_out
        self._timer: asyncio.TimerHandle | None = None
        self.renew()
        if limit_s is not None:
            self._timer = self._loop.call_later(limit_s, self._look, limit_s)

    def renew(self) -> None:
        """The silence is over; the limit counts from now."""
        self._since_s = self._loop.time()

    def close(self) -> None:
        """Stop waiting."""
        if self._timer:
            self._timer.cancel()

    def _look(self, limit_s: float) -> None:
        left_s = self._since_s + limit_s - self._loop.time()
        has_run_out = left_s <= 0
        if has_run_out:
            self.renew()
        # First, so that it may be closed by whoever is called.
        self._timer = self._loop.call_later(limit_s if has_run_out else left_s, self._look, limit_s)
        if has_run_out:
            self._run_out()

"""An inactivity timeout that is free to renew: its timer stays set, and checks the time when it fires."""

import asyncio
from collections.abc import Callable


class SilenceTimeout:
    """Calls `run_out` once `limit_s` seconds have passed without a `renew`. Event loop only.

    A stream calls `renew` with every token, so a renewal sets no timer: when the timer fires, it computes how
    long is left. With `limit_s` None it never runs out.
    """

    def __init__(self, limit_s: float | None, run_out: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._run_out = run_out
        self._timer: asyncio.TimerHandle | None = None
        self.renew()
        if limit_s is not None:
            self._timer = self._loop.call_later(limit_s, self._check, limit_s)

    def renew(self) -> None:
        """Restart the timeout from now."""
        self._since_s = self._loop.time()

    def close(self) -> None:
        """Stop waiting."""
        if self._timer:
            self._timer.cancel()

    def _check(self, limit_s: float) -> None:
        left_s = self._since_s + limit_s - self._loop.time()
        has_run_out = left_s <= 0
        if has_run_out:
            self.renew()
        # First, so that the callback may close it.
        self._timer = self._loop.call_later(limit_s if has_run_out else left_s, self._check, limit_s)
        if has_run_out:
            self._run_out()

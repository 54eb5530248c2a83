"""The bridge between an engine's thread and the event loop: one turn's outputs, in order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from domain.ports import CacheHandle, Cancelled, End, EngineFinal, EngineOutput


class EngineStream:
    """Takes outputs on the engine's thread and gives them on the loop it was made on.

    Outputs that come faster than the loop turns cost it one wake-up together.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[EngineOutput] = deque()
        self._wake_scheduled = False
        self._news = asyncio.Event()
        self._drop: Callable[[CacheHandle], None] | None = None

    def deliver(self, output: EngineOutput) -> None:
        """Take an output. Any thread; does not block."""
        self._arrived.append(output)
        if self._drop:
            self.abandon(self._drop)  # as late as this, it has to go as well
            return
        # The output is queued before the flag is read, so a wake-up that is under way will find it.
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon_threadsafe(self._wake)

    def abandon(self, drop: Callable[[CacheHandle], None]) -> None:
        """Take no more outputs; the handles of those that still come are dropped."""
        self._drop = drop
        # Both threads may be here at once.
        with suppress(IndexError):
            while True:
                self._discard(self._arrived.popleft(), drop)

    def _discard(self, output: EngineOutput, drop: Callable[[CacheHandle], None]) -> None:
        if isinstance(output, End | Cancelled) and output.cache is not None:
            drop(output.cache)

    def _wake(self) -> None:
        self._wake_scheduled = False
        self._news.set()

    async def outputs(self, limit_s: float) -> AsyncIterator[EngineOutput]:
        """The turn's outputs as they come; the last is an `EngineFinal`.

        Raises:
            TimeoutError: none came for `limit_s` seconds.
        """
        while True:
            async with asyncio.timeout(limit_s):
                await self._news.wait()
            self._news.clear()
            while self._arrived:
                output = self._arrived.popleft()
                yield output
                if isinstance(output, EngineFinal):
                    return
            # Frames of this turn have piled up by now; let their readers have them.
            await asyncio.sleep(0)

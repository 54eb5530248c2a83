"""The bridge between an engine's thread and the event loop: one turn's outputs, in order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from domain.ports import EngineFinal, EngineOutput


class EngineStream:
    """Takes outputs on the engine's thread and gives them on the loop it was made on.

    Outputs that come faster than the loop turns cost it one wake-up together.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[EngineOutput] = deque()
        self._wake_scheduled = False
        self._news = asyncio.Event()

    def deliver(self, output: EngineOutput) -> None:
        """Take an output. Any thread; does not block."""
        self._arrived.append(output)
        # The output is queued before the flag is read, so a wake-up that is under way will find it.
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._wake_scheduled = False
        self._news.set()

    async def outputs(self) -> AsyncIterator[EngineOutput]:
        """The turn's outputs as they come; the last is an `EngineFinal`."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._arrived:
                output = self._arrived.popleft()
                yield output
                if isinstance(output, EngineFinal):
                    return
            # Frames of this turn have piled up by now; let their readers have them.
            await asyncio.sleep(0)

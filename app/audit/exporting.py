"""An export as an answer over HTTP: the log is read on a thread of its own, a chunk at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnlog.domain.ports import LogPass

Answer = TypeVar("Answer")


class Export:
    """One pass over the log for one reader.

    Neither a slow store nor a slow reader holds up the event loop, and no other work waits for its thread.
    `close` may be called at any time, and must be called.

    Args:
        begin: begins the pass; it may block.
    """

    def __init__(self, begin: Callable[[], LogPass]) -> None:
        self._begin = begin
        self._pass: LogPass | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export")

    async def open(self) -> None:
        """Begin the pass.

        Raises:
            StorageError: the log cannot be read.
        """
        await self._on_thread(self._open)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The lines of the export, some at a time."""
        while chunk := await self._on_thread(lambda: next(self._chunks, b"")):
            yield chunk

    def close(self) -> None:
        """End the pass after the step that it is taking; returns at once."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _open(self) -> None:
        self._pass = self._begin()
        self._chunks = iter(self._pass)

    def _close(self) -> None:
        if self._pass:
            self._pass.close()

    async def _on_thread(self, step: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

"""An export as an HTTP response: reads the log on a thread of its own, a chunk at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnlog.domain.ports import LogExport

Answer = TypeVar("Answer")


class Export:
    """One pass over the log for one reader.

    A slow store or a slow client blocks neither the event loop nor other readers of the store. `close` may be
    called at any time, and must be called.

    Args:
        begin: begins the pass; it may block.
    """

    def __init__(self, begin: Callable[[], LogExport]) -> None:
        self._begin = begin
        self._chunks: Iterator[bytes] = iter(())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export")

    async def open(self) -> None:
        """Begin the pass.

        Raises:
            StorageError: the log cannot be read.
        """
        await self._on_thread(self._open)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The lines of the export, in chunks.

        Raises:
            StorageError: the log cannot be read.
        """
        while chunk := await self._on_thread(lambda: next(self._chunks, b"")):
            yield chunk

    def close(self) -> None:
        """End the pass after the chunk that it is reading; returns at once."""
        self._thread.shutdown(wait=False)

    def _open(self) -> None:
        self._chunks = iter(self._begin())

    async def _on_thread(self, step: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

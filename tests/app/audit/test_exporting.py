"""An export over HTTP is read off the event loop, and ends when its client leaves."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from turnlog.app.audit.exporting import Export
from turnlog.domain.errors import StorageError


class Pass:
    """A pass over a log whose second chunk comes when the test says so."""

    total = done = position = 0

    def __init__(self) -> None:
        self.reading = threading.Event()
        self.go_on = threading.Event()
        self.threads: list[threading.Thread] = []

    def __iter__(self) -> Iterator[bytes]:
        self.threads.append(threading.current_thread())
        yield b"header\n"
        self.reading.set()
        self.go_on.wait()
        self.threads.append(threading.current_thread())
        yield b"end\n"


async def test_chunks_are_read_on_another_thread() -> None:
    told = Pass()
    told.go_on.set()
    export = Export(lambda: told)

    await export.open()
    chunks = [chunk async for chunk in export.chunks()]
    export.close()

    assert chunks == [b"header\n", b"end\n"]
    (thread,) = set(told.threads)
    assert thread is not threading.current_thread()


async def test_a_client_who_leaves_ends_the_pass_after_the_chunk_it_is_reading() -> None:
    told = Pass()
    export = Export(lambda: told)
    await export.open()

    async def read() -> None:
        async for _ in export.chunks():
            pass

    reading = asyncio.create_task(read())
    assert await asyncio.to_thread(told.reading.wait, 5), "the second chunk was not asked for"
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    export.close()  # returns although the chunk is not read
    told.go_on.set()

    await asyncio.to_thread(told.threads[0].join, 5)
    assert not told.threads[0].is_alive(), "the thread of the export did not end"


async def test_a_log_that_cannot_be_read_is_said_before_the_first_byte() -> None:
    def broken() -> Pass:
        raise StorageError("the log cannot be read")

    export = Export(broken)

    with pytest.raises(StorageError):
        await export.open()
    export.close()

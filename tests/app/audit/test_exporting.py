"""An export that is read over HTTP: off the event loop, and let go of when its reader leaves."""

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
        self.closed = threading.Event()
        self.closed_while_reading = False
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[bytes]:
        self.threads.add(threading.get_ident())
        yield b"header\n"
        self.reading.set()
        self.go_on.wait()
        self.reading.clear()
        self.threads.add(threading.get_ident())
        yield b"end\n"

    def close(self) -> None:
        self.closed_while_reading = self.reading.is_set()
        self.closed.set()


async def test_chunks_are_read_on_another_thread() -> None:
    told = Pass()
    told.go_on.set()
    export = Export(lambda: told)

    await export.open()
    chunks = [chunk async for chunk in export.chunks()]
    export.close()

    assert chunks == [b"header\n", b"end\n"]
    assert len(told.threads) == 1
    assert threading.get_ident() not in told.threads
    assert await asyncio.to_thread(told.closed.wait, 60)


async def test_a_reader_who_leaves_ends_the_pass_after_the_step_it_is_at() -> None:
    told = Pass()
    export = Export(lambda: told)
    await export.open()

    async def read() -> None:
        async for _ in export.chunks():
            pass

    reading = asyncio.create_task(read())
    assert await asyncio.to_thread(told.reading.wait, 60)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    export.close()  # returns although the step is not done
    told.go_on.set()

    assert await asyncio.to_thread(told.closed.wait, 60)
    assert not told.closed_while_reading


async def test_a_log_that_cannot_be_read_is_said_before_the_first_byte() -> None:
    def broken() -> Pass:
        raise StorageError("the log cannot be read")

    export = Export(broken)

    with pytest.raises(StorageError):
        await export.open()
    export.close()

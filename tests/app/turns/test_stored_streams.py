"""The frames of stored turns: in memory once for all readers, within what their owner may have in flight."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.app.services import asked, running
from turnlog.app.http.service import Service
from turnlog.app.turns.live import FrameLog
from turnlog.domain.errors import OwnersShareError, ResponseNotFoundError
from turnlog.domain.owners import LOCAL_OWNER


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path) as made:
        yield made


async def stored(service: Service) -> str:
    """The id of a turn with long instructions that has ended and is in the log."""
    turn = await service.turns.begin(asked("hi", instructions="x" * 100_000))
    await turn.settled.wait()
    return turn.response.id


async def test_readers_of_a_response_share_its_frames_and_let_them_go(service: Service) -> None:
    """T2-20: sixty readers hold what one holds; after the last, nothing is left."""
    response_id = await stored(service)

    async def read() -> tuple[int, int, int]:
        logs = await asyncio.gather(*(service.streams.of(response_id, LOCAL_OWNER) for _ in range(60)))
        return len(set(map(id, logs))), service.in_flight.total, logs[0].size_bytes

    count, held_bytes, size_bytes = await asyncio.create_task(read())
    gc.collect()  # the tasks of `gather` had them, too

    assert (count, held_bytes) == (1, size_bytes)
    assert 100_000 < size_bytes < 110_000
    assert service.in_flight.total == 0


async def test_frames_in_memory_are_nobody_s_who_may_not_read_the_response(service: Service) -> None:
    """D-18, D-40: not another owner's, and not their owner's either once the response is deleted."""
    response_id = await stored(service)
    reading: FrameLog = await service.streams.of(response_id, LOCAL_OWNER)

    with pytest.raises(ResponseNotFoundError):
        await service.streams.of(response_id, "mallory")
    await service.deletion.delete(response_id, LOCAL_OWNER)
    with pytest.raises(ResponseNotFoundError):
        await service.streams.of(response_id, LOCAL_OWNER)

    assert reading.size_bytes


async def test_one_stream_more_than_fits_is_refused_until_another_is_read(service: Service) -> None:
    """T2-20: in all, here without keys; a lone one may be of any size."""
    first, second = await stored(service), await stored(service)
    service.in_flight.limit = 150_000
    reading = [await service.streams.of(first, LOCAL_OWNER)]

    with pytest.raises(OwnersShareError, match="Bytes in flight limit reached"):
        await service.streams.of(second, LOCAL_OWNER)
    reading.clear()
    await service.streams.of(second, LOCAL_OWNER)

    assert service.in_flight.reached == 1

"""A stream's frames: any number of readers, each at its own pace."""

import asyncio

import pytest

from turnlog.app.turns.live import FrameLog

FRAMES = [b"a", b"b", b"c"]


async def read(log: FrameLog, start: int = 0) -> bytes:
    """All that a reader gets."""
    return b"".join([frame async for frames in log.read(start) for frame in frames])


@pytest.mark.parametrize(("start", "expected"), [(0, b"abc"), (1, b"bc"), (2, b"c"), (3, b"c"), (99, b"c")])
async def test_a_reader_gets_the_frames_from_where_it_asks_and_at_least_the_last(
    start: int, expected: bytes
) -> None:
    log = FrameLog()
    log.extend(FRAMES, closed=True)

    assert await read(log, start) == expected


@pytest.mark.parametrize(("start", "expected"), [(0, b"abc"), (2, b"c"), (99, b"c")])
async def test_a_reader_that_came_early_waits_for_what_is_to_come(start: int, expected: bytes) -> None:
    log = FrameLog()
    reading = asyncio.create_task(read(log, start))
    for number, frame in enumerate(FRAMES):
        await asyncio.sleep(0)
        log.extend([frame], closed=number == len(FRAMES) - 1)

    assert await reading == expected


async def test_a_slow_reader_holds_up_neither_the_writer_nor_a_quick_one() -> None:
    log = FrameLog()
    slow = log.read()
    log.extend([b"a"], closed=False)
    first = b"".join(await anext(slow))
    log.extend([b"b"] * 1_000, closed=True)

    assert await read(log) == b"a" + b"b" * 1_000
    rest = b"".join([frame async for frames in slow for frame in frames])
    assert first + rest == b"a" + b"b" * 1_000


async def test_a_reader_is_told_of_silence_if_it_wants_to_know() -> None:
    log = FrameLog()
    log.extend([b"a"], closed=False)
    reader = log.read(silence_s=0.001)

    assert [await anext(reader) for _ in range(3)] == [[b"a"], [], []]
    log.extend([b"b"], closed=True)
    assert [frames async for frames in reader if frames] == [[b"b"]]

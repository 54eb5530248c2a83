"""A turn in memory: the frames that its readers follow, and when it is given up because they have left."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.domain.stories import COMMITTED, CREATED, STARTED
from tests.fakes.clock import VirtualLoop
from turnlog.adapters.openai.frames import Framer
from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.domain.response import Response

FRAMES = [b"a", b"b", b"c"]

_Result = TypeVar("_Result")


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


# ── clients that leave ────────────────────────────────────────────────────────────────────────────


class Turn:
    """A turn under an idempotency key that goes on for 10 seconds without a client."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self._turn = self._on_the_loop(lambda: LiveTurn(Response(CREATED), Framer()))
        self._turn.grace_s = 10.0

    def at(self, second: float, happens: Callable[[LiveTurn], None]) -> str | None:
        """Why the turn is being stopped at that second, after this has happened."""
        self.loop.run_for(second - self.loop.time())
        self._on_the_loop(lambda: happens(self._turn))
        return self._turn.abort_reason

    def _on_the_loop(self, call: Callable[[], _Result]) -> _Result:
        async def called() -> _Result:
            return call()

        return self.loop.run_until_complete(called())


@pytest.fixture
def turn() -> Iterator[Turn]:
    turn = Turn()
    yield turn
    turn.loop.close()


def nothing(_: LiveTurn) -> None:
    """Nothing happens."""


def test_a_turn_is_given_up_when_nobody_has_come_back_in_time(turn: Turn) -> None:
    """T2-26."""
    turn.at(5.0, LiveTurn.leave)

    assert [turn.at(14.9, nothing), turn.at(15.1, nothing)] == [None, "client_abort"]


def test_whoever_joins_keeps_a_turn_going_and_leaves_it_the_same_time(turn: Turn) -> None:
    """T2-26."""
    turn.at(5.0, LiveTurn.leave)
    turn.at(14.0, LiveTurn.join)

    assert turn.at(99.0, LiveTurn.leave) is None
    assert [turn.at(108.9, nothing), turn.at(109.1, nothing)] == [None, "client_abort"]


def test_a_turn_goes_on_for_the_clients_that_stay(turn: Turn) -> None:
    """T2-26."""
    turn.at(1.0, LiveTurn.join)
    turn.at(2.0, LiveTurn.leave)

    assert turn.at(99.0, nothing) is None


def test_a_turn_that_ends_meanwhile_keeps_no_timer(turn: Turn) -> None:
    """G-063."""
    turn.at(1.0, LiveTurn.leave)
    turn.at(2.0, end)
    turn.at(3.0, LiveTurn.join)
    turn.at(4.0, LiveTurn.leave)

    assert turn.at(99.0, nothing) is None
    assert not turn.loop.complaints


def end(turn: LiveTurn) -> None:
    """The turn ends well."""
    for event in (STARTED, COMMITTED):
        turn.response.apply(event)
        turn.publish([event])


def test_a_turn_without_a_key_ends_with_its_client() -> None:
    """D-25."""
    turn = LiveTurn(Response(CREATED), Framer())

    turn.leave()

    assert turn.abort_reason == "client_abort"

"""Outputs of engines' threads on the event loop: in order, one wake-up for many, an end for each stream."""

import asyncio
import logging
from contextvars import ContextVar
from threading import Thread
from typing import Any

import pytest

from turnlog.app.turns import engine_stream
from turnlog.app.turns.engine_stream import Arrivals, EngineStream
from turnlog.domain.items import Logprob
from turnlog.domain.ports import CacheHandle, Cancelled, EngineOutput, ReasoningChunk, TextChunk

HANDLE: CacheHandle = object()
END = Cancelled(HANDLE)


def chunk(number: int) -> TextChunk:
    return TextChunk(f"{number}")


class Listener:
    """Who takes a stream's outputs."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.taken: list[EngineOutput] = []
        self.dropped: list[CacheHandle] = []
        self.stream: EngineStream = arrivals.open(self.taken.append, self.dropped.append)


def on_a_thread(*calls: tuple[EngineStream, EngineOutput]) -> None:
    """Deliver, and wait until that is done; the loop does nothing meanwhile."""

    def deliver() -> None:
        for stream, output in calls:
            stream.deliver(output)

    thread = Thread(target=deliver)
    thread.start()
    thread.join()


async def test_each_stream_gets_its_outputs_in_order() -> None:
    arrivals = Arrivals()
    one, other = Listener(arrivals), Listener(arrivals)

    on_a_thread(
        (one.stream, chunk(1)), (other.stream, chunk(2)), (one.stream, chunk(3)), (other.stream, Cancelled())
    )
    await other.stream.until_over(10)

    assert (one.taken, other.taken) == ([chunk(1), chunk(3)], [chunk(2), Cancelled()])


async def test_outputs_that_come_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals()
    listeners = [Listener(arrivals) for _ in range(16)]
    loop = asyncio.get_running_loop()
    wakes = 0
    call_soon_threadsafe = loop.call_soon_threadsafe

    def counting(*args: Any, **named: Any) -> asyncio.Handle:
        nonlocal wakes
        wakes += 1
        return call_soon_threadsafe(*args, **named)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)

    for number in range(3):
        on_a_thread(*((each.stream, chunk(number)) for each in listeners))
        await asyncio.sleep(0)

    assert wakes == 3
    assert [each.taken for each in listeners] == [[chunk(0), chunk(1), chunk(2)]] * 16


async def test_a_flood_does_not_keep_others_from_the_loop() -> None:
    arrivals = Arrivals()
    flooded = Listener(arrivals)
    seen: list[int] = []

    on_a_thread(*[(flooded.stream, chunk(0))] * 1_000)
    while len(flooded.taken) < 1_000:
        await asyncio.sleep(0)
        seen.append(len(flooded.taken))

    assert len(seen) >= 10


async def test_outputs_that_take_long_are_handed_over_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """T2-05: others have the loop between any two of them."""
    loop = asyncio.get_running_loop()
    now_s, told = loop.time(), list[object]()

    def take(output: EngineOutput) -> None:
        nonlocal now_s
        now_s += 1.0
        told.append(output)
        loop.call_soon(told.append, "another")

    monkeypatch.setattr(loop, "time", lambda: now_s)
    stream = Arrivals().open(take, lambda _: None)
    outputs = [TextChunk("a"), TextChunk("b")]
    for output in outputs:
        stream.deliver(output)
    for _ in range(10):
        await asyncio.sleep(0)

    assert told == [outputs[0], "another", outputs[1], "another"]


@pytest.mark.parametrize("kind", [TextChunk, ReasoningChunk])
async def test_a_long_text_is_handed_over_in_pieces(
    kind: type[TextChunk | ReasoningChunk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2-05: text that almost has tags in it is read character by character."""
    monkeypatch.setattr(engine_stream, "_CHUNK_CHARACTERS", 3)
    listener = Listener(Arrivals())

    on_a_thread((listener.stream, kind("<<<tool")), (listener.stream, Cancelled()))
    await listener.stream.until_over(10)

    assert listener.taken == [kind("<<<"), kind("too"), kind("l"), Cancelled()]


async def test_the_first_piece_of_a_long_text_has_its_log_probabilities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T2-05: they go out with the first text that follows them."""
    monkeypatch.setattr(engine_stream, "_CHUNK_CHARACTERS", 3)
    listener, logprobs = Listener(Arrivals()), (Logprob("abcd", -0.5),)

    on_a_thread((listener.stream, TextChunk("abcd", logprobs)), (listener.stream, Cancelled()))
    await listener.stream.until_over(10)

    assert listener.taken == [TextChunk("abc", logprobs), TextChunk("d"), Cancelled()]


async def test_a_stream_without_outputs_runs_out_of_time() -> None:
    listener = Listener(Arrivals())

    with pytest.raises(TimeoutError):
        await listener.stream.until_over(0.001)


@pytest.mark.parametrize("late", [[END], [chunk(1), END]])
async def test_what_comes_when_a_stream_is_over_is_dropped(late: list[EngineOutput]) -> None:
    """Nobody else would give its memory back."""
    listener = Listener(Arrivals())
    with pytest.raises(TimeoutError):
        await listener.stream.until_over(0.001)

    on_a_thread(*((listener.stream, output) for output in late))
    await asyncio.sleep(0)

    assert (listener.taken, listener.dropped) == ([], [HANDLE])


async def test_a_stream_that_nobody_waits_for_any_more_is_over() -> None:
    listener = Listener(Arrivals())
    waiting = asyncio.create_task(listener.stream.until_over(10))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    on_a_thread((listener.stream, END))
    await asyncio.sleep(0)

    assert (listener.taken, listener.dropped) == ([], [HANDLE])


async def test_what_taking_an_output_raises_is_raised_where_the_end_is_waited_for() -> None:
    def take(_: EngineOutput) -> None:
        raise ValueError("a bug")

    stream = Arrivals().open(take, lambda _: None)
    on_a_thread((stream, chunk(1)), (stream, chunk(2)))

    with pytest.raises(ValueError, match="a bug"):
        await stream.until_over(10)


async def test_outputs_are_taken_in_the_context_of_their_turn(caplog: pytest.LogCaptureFixture) -> None:
    """R-400: a line about a turn must not be logged under another."""
    turn: ContextVar[str] = ContextVar("turn", default="none")
    caplog.set_level(logging.INFO)
    arrivals = Arrivals()
    streams = []
    for name in ("a", "b"):
        turn.set(name)
        streams.append(arrivals.open(lambda _: logging.getLogger("turnlog").info(turn.get()), lambda _: None))
    turn.set("loop")

    on_a_thread((streams[1], chunk(1)), (streams[0], chunk(1)))
    await asyncio.sleep(0)

    assert caplog.messages == ["b", "a"]

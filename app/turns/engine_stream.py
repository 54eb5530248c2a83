"""The bridge from engines' threads to the event loop: delivers the outputs of all turns in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context

from msgspec.structs import replace

from turnlog.app.turns.silence import SilenceTimeout
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    End,
    EngineFinal,
    EngineOutput,
    ReasoningChunk,
    TextChunk,
)

_AT_ONCE = 64
"""Outputs handed over before other tasks of the loop run, such as the readers of the frames."""


_AT_ONCE_S = 0.005
"""The same as a time limit: an output may hold a long text."""

_CHUNK_CHARACTERS = 16 * 1024
"""The most text of an output that is handed over at once: what looks like tags costs 0.1 µs a character."""


class Arrivals:
    """Receives the outputs of all turns on engines' threads and hands them over on the event loop.

    An engine delivers a batch's outputs at about the same time; together they cost the loop one wake-up.
    """

    def __init__(self) -> None:
        self._arrived: deque[tuple[EngineStream, EngineOutput]] = deque()
        self._scheduled = False

    def open(
        self, take: Callable[[EngineOutput], None], take_late: Callable[[CacheHandle], None]
    ) -> "EngineStream":
        """The stream of a new turn.

        Args:
            take: takes its outputs on the loop, in the context that this is called in.
            take_late: takes the cache handles of outputs that arrive after the stream is over.
        """
        return EngineStream(self, take, take_late)

    def put(self, stream: "EngineStream", output: EngineOutput) -> None:
        """Take an output of a turn. Any thread; does not block."""
        self._arrived.append((stream, output))
        # The output is queued before the flag is read, so a hand-over in progress will find it.
        if not self._scheduled:
            self._scheduled = True
            stream.loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._scheduled = False
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _AT_ONCE_S
        for _ in range(_AT_ONCE):
            if not self._arrived:
                return
            stream, output = self._arrived.popleft()
            stream.receive(output)
            if loop.time() >= until_s:
                break
        self._scheduled = True
        loop.call_soon(self._hand_over)


class EngineStream:
    """One turn's outputs. It is over after the last of them, or when nobody waits for them any more."""

    def __init__(
        self,
        arrivals: Arrivals,
        take: Callable[[EngineOutput], None],
        take_late: Callable[[CacheHandle], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._arrivals = arrivals
        self._take = take
        self.take_late = take_late
        # Log lines about the turn carry its context, although the engine's thread triggered them.
        self._context = copy_context()
        self._over: asyncio.Future[None] = self.loop.create_future()
        self._silence: SilenceTimeout | None = None

    def deliver(self, output: EngineOutput) -> None:
        """Take an output. Any thread; does not block."""
        for piece in _pieces(output):
            self._arrivals.put(self, piece)

    async def until_over(self, limit_s: float) -> None:
        """Wait for the turn's last output to be taken.

        Raises:
            TimeoutError: no output came for `limit_s` seconds.
            Exception: what taking an output raised.
        """
        self._silence = SilenceTimeout(limit_s, self._run_out)
        try:
            await self._over
        finally:
            self._silence.close()
            # The engine may hold this stream for a while; it must not keep the turn in memory.
            self._take = _discard

    def receive(self, output: EngineOutput) -> None:
        """Hand an output over. Event loop."""
        if self._over.done():
            if isinstance(output, End | Cancelled) and output.cache is not None:
                self.take_late(output.cache)
            return
        if self._silence:
            self._silence.renew()
        try:
            self._context.run(self._take, output)
        except Exception as error:
            self._over.set_exception(error)
        else:
            if isinstance(output, EngineFinal):
                self._over.set_result(None)

    def _run_out(self) -> None:
        if not self._over.done():
            self._over.set_exception(TimeoutError())


def _pieces(output: EngineOutput) -> Iterator[EngineOutput]:
    """A long chunk as several; log probabilities go with the first of them."""
    if not isinstance(output, TextChunk | ReasoningChunk) or len(output.text) <= _CHUNK_CHARACTERS:
        yield output
        return
    text = output.text
    yield replace(output, text=text[:_CHUNK_CHARACTERS])
    for at in range(_CHUNK_CHARACTERS, len(text), _CHUNK_CHARACTERS):
        yield type(output)(text[at : at + _CHUNK_CHARACTERS])


def _discard(_: EngineOutput) -> None:
    """Ignores the outputs of a stream that is over."""

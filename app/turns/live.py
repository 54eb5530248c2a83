"""A turn while it is streamed: its response in memory and its frames."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from typing import Protocol

from turnlog.app.turns.silence import SilenceTimeout
from turnlog.domain.events import CacheClass, FailureReason, Recorded, ResponseEvent
from turnlog.domain.ports import Frame, Framer, parts
from turnlog.domain.response import Response

_CHUNK_FRAMES = 64
"""The most frames a lagging reader gets at once; more would hold up the other readers."""


class FrameLog:
    """The frames of one stream in order; any number of readers follow it, each at its own pace."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._closed = False
        self._broken_off = False
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def size_bytes(self) -> int:
        """How much memory the frames take; what they share counts once."""
        return sum({id(part): len(part) for frame in self._frames for part in parts(frame)}.values())

    def first(self, count: int) -> list[Frame]:
        """The first frames, at most `count`."""
        return self._frames[:count]

    def extend(self, frames: Sequence[Frame], *, closed: bool) -> None:
        """Add frames, the last ones if `closed`, and wake the readers."""
        if not frames:
            return
        self._frames += frames
        self._closed = closed
        self._wake()

    def break_off(self) -> None:
        """Let the readers go without an end: another process will tell the rest."""
        self._broken_off = True
        self._wake()

    async def read(
        self, start: int = 0, *, silence_s: float | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        """The same as `follow`, each frame in one piece: for readers that take them apart."""
        async with aclosing(self.follow(start, silence_s=silence_s)) as chunks:
            async for chunk in chunks:
                yield [bytes(frame) for frame in chunk]

    async def follow(
        self, start: int = 0, *, silence_s: float | None = None
    ) -> AsyncGenerator[list[Frame], None]:
        """The frames from number `start` on, in chunks as they arrive, until the stream is closed.

        Past the last frame it yields the terminal again, so that a resumed reader always sees the end.

        Args:
            silence_s: after how many seconds without a frame to yield an empty list; None for never.
        """
        silent = False

        def fall_silent() -> None:
            nonlocal silent
            silent = True
            self._wake()

        silence = SilenceTimeout(silence_s, fall_silent)
        try:
            while True:
                if chunk := self._frames[start : start + _CHUNK_FRAMES]:
                    start += len(chunk)
                    yield chunk
                    if self._closed and start >= len(self._frames):
                        return
                    silent = False
                    silence.renew()
                elif self._closed:
                    start = len(self._frames) - 1
                elif self._broken_off:
                    return
                elif silent:
                    silent = False
                    yield []
                else:
                    await self._news.wait()
        finally:
            silence.close()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class EventLog(Protocol):
    """Where a turn's events are stored (`persistence.TurnLog`)."""

    last_write: Future[None]

    def keep(self, events: Sequence[ResponseEvent]) -> None:
        """Store events."""

    def numbered(self, events: Sequence[ResponseEvent]) -> list[Recorded]:
        """Events in their places, for whoever stores them."""


class LiveTurn:
    """One running turn: its response so far, its frames, and how to stop it.

    The turn is a task of its own; requests only read it. `left_queue` is set when it no longer waits for a
    slot, `ended` when its terminal frame is rendered, `settled` when the write of its last event has landed
    or failed. `cache_class` is the result of the cache lookup when it was accepted (R-243). `grace_s` is how
    long it goes on after its last client has left. Once it `is_steered` it stops at its next token, for the
    turn that continues it. `log` has its events, if it is stored.

    Args:
        followed: the frames of its acceptance, if it was queued before.
    """

    def __init__(self, response: Response, framer: Framer, followed: FrameLog | None = None) -> None:
        self.response = response
        self.frames = followed or FrameLog()
        self.left_queue = asyncio.Event()
        self.ended = asyncio.Event()
        self.settled = asyncio.Event()
        self.abort_reason: FailureReason | None = None
        self.cache_class: CacheClass = "fresh"
        self.on_abort: Callable[[], object] = _nothing_to_stop
        self.grace_s = 0.0
        self.is_steered = False
        self.log: EventLog | None = None
        self._framer = framer
        self._clients = 1
        self._given_up: asyncio.TimerHandle | None = None
        if followed:
            framer.receive(response.created, response)
        else:
            self.publish([response.created])

    @property
    def expires_at(self) -> int | None:
        """Unix time in seconds from which the response is gone, or later (D-37); None if it is not stored."""
        created = self.response.created
        return created.expires_at if created.store else None

    def publish(self, events: Sequence[ResponseEvent]) -> None:
        """Render events to frames for all readers."""
        frames = [frame for event in events for frame in self._framer.receive(event, self.response)]
        self._send(frames, closed=self._framer.closed)

    def abort(self, reason: FailureReason) -> None:
        """Stop the turn at its next safe point; no effect once it has ended or is being stopped."""
        if self.abort_reason is None and self.response.ended is None:
            self.abort_reason = reason
            self.on_abort()

    @property
    def stays_queued(self) -> bool:
        """Whether it is left for the next server to run: one in the background that has not begun (D-40)."""
        is_waiting = self.response.created.background and self.response.started is None
        return is_waiting and self.abort_reason == "shutting_down"

    def join(self) -> None:
        """Another client joins the turn."""
        self._clients += 1
        self._stay()

    def leave(self) -> None:
        """A client has left before the end."""
        self._clients -= 1
        if self._clients or self.response.ended is not None:
            return
        if self.grace_s:
            loop = asyncio.get_running_loop()
            self._given_up = loop.call_later(self.grace_s, self.abort, "client_abort")
        else:
            self.abort("client_abort")

    def _stay(self) -> None:
        if self._given_up:
            self._given_up.cancel()
            self._given_up = None

    async def until_settled(self, limit_s: float) -> bool:
        """Wait for the write of the last event; whether it settled within `limit_s` seconds."""
        try:
            await asyncio.wait_for(self.settled.wait(), limit_s)
        except TimeoutError:
            return False
        return True

    def _send(self, frames: Sequence[Frame], *, closed: bool) -> None:
        self.frames.extend(frames, closed=closed)
        if closed:
            self.ended.set()
            self._stay()
            # Remaining readers of the turn must not keep its run and its prompt in memory.
            self.on_abort = _nothing_to_stop


def _nothing_to_stop() -> None:
    """The `on_abort` of a turn that is not running."""

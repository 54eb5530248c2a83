"""The streams of turns that have ended, from the log: rendered once for all who read one at the same time."""

import asyncio
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from turnlog.app.turns.in_flight import Holding, InTurn
from turnlog.app.turns.live import FrameLog
from turnlog.app.turns.retrieval import Retrieval, Story
from turnlog.domain.budgets import SharedBudget
from turnlog.domain.events import ResponseEvent
from turnlog.domain.ports import Frame
from turnlog.domain.response import Response

Render = Callable[[Sequence[ResponseEvent], Response], Sequence[Frame]]


class StoredStreams:
    """Frames read from the log. They count as bytes in flight of their owner for as long as somebody reads.

    Args:
        render: makes the frames of a whole stream.
        in_flight: bounds the frames of all streams that are being read.
    """

    def __init__(
        self, retrieval: Retrieval, render: Render, in_flight: SharedBudget, in_turn: InTurn
    ) -> None:
        self._retrieval = retrieval
        self._in_turn = in_turn
        self._render = render
        self._in_flight = in_flight
        self._logs: weakref.WeakValueDictionary[str, FrameLog] = weakref.WeakValueDictionary()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def of(self, response_id: str, owner: str) -> FrameLog:
        """The frames of a response of `owner`.

        Raises:
            ResponseNotFoundError, StorageTimeoutError: see `Retrieval.story`.
            OwnersShareError: the owner has as much in flight as it may.
        """
        # One at a time: whoever comes while the frames are being made gets the same ones.
        async with self._locks.setdefault(response_id, asyncio.Lock()):
            log = self._logs.get(response_id)
            if log and await self._retrieval.is_there(response_id, owner):
                return log
            async with self._retrieval.places.one(owner):
                return await self.tell(await self._retrieval.story(response_id, owner))

    async def tell(self, story: Story, render: Render | None = None) -> FrameLog:
        """The frames of a response that was read already; raises `OwnersShareError` as `of`.

        Args:
            render: makes frames of another form, in place of the usual ones.
        """
        created = story.response.created
        log = FrameLog()
        work = partial(render or self._render, story.events, story.response)
        frames = await asyncio.wrap_future(self._in_turn(created.owner, work))
        log.extend(frames, closed=True)
        holding = Holding(self._in_flight, created.owner)
        holding.grow(log.size_bytes)
        weakref.finalize(log, holding.release)
        if render is None:
            self._logs[created.response_id] = log
        return log

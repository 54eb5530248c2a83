"""One turn for all requests under one idempotency key: a repeat joins it or gets what is stored (T2-26).

A key is taken when its turn begins, so a refusal takes none. It is free again when the turn fails or its
response is gone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.queued_turns import QueuedTurn
from turnlog.app.turns.retrieval import Retrieval, Story
from turnlog.domain.errors import ResponseNotFoundError, StorageTimeoutError
from turnlog.domain.events import TurnFailed
from turnlog.domain.idempotency import KEY_LIFE_MS, check_same_body, key_digest
from turnlog.domain.ports import Clock
from turnlog.domain.request import TurnRequest


class IdempotencyKeys:
    """Finds the turns that requests repeat: in memory while they run, then in the log."""

    def __init__(self, retrieval: Retrieval, live: LiveTurns, clock: Clock) -> None:
        self._retrieval = retrieval
        self._live = live
        self._clock = clock
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def repeated(
        self, request: TurnRequest, owner: str
    ) -> AsyncIterator[LiveTurn | QueuedTurn | Story | None]:
        """The turn that the request repeats, which it has joined if it is live; None if it is a new one.

        Begin the new turn before this is left: other requests under the key wait until then.

        Raises:
            IdempotencyKeyReusedError: the key stands for a turn that another body asked for.
            StorageTimeoutError: whether the key's turn ended well is not known yet.
        """
        if (key := request.idempotency_key) is None:
            yield None
            return
        async with self._locks.setdefault((owner, key), asyncio.Lock()):
            yield await self._found(request, owner, key)

    async def _found(
        self, request: TurnRequest, owner: str, key: str
    ) -> LiveTurn | QueuedTurn | Story | None:
        response_id = self._live.under_key(owner, key)
        if response_id is None:
            return await self._stored(request, owner, key)
        if turn := self._live.of(response_id, owner):
            return await self._joined(request, turn)
        # Its write passed the hard limit and may still land.
        raise StorageTimeoutError(response_id)

    async def _joined(self, request: TurnRequest, turn: LiveTurn) -> LiveTurn | None:
        if turn.abort_reason is not None:
            await turn.ended.wait()  # The engine may have been done before it was stopped.
        if isinstance(turn.response.ended, TurnFailed):
            return None
        check_same_body(request, turn.response.created)
        turn.join()
        return turn

    async def _stored(
        self, request: TurnRequest, owner: str, key: str
    ) -> LiveTurn | QueuedTurn | Story | None:
        since_ms = self._clock.now_ms() - KEY_LIFE_MS
        response_id = await self._retrieval.latest_under_key(key_digest(owner, key), since_ms=since_ms)
        if response_id is None:
            return None
        # A background turn is in the log before it is live, and may have begun during the look-up.
        if turn := self._live.of(response_id, owner):
            return await self._joined(request, turn)
        if queued := self._retrieval.queued(response_id, owner):
            response, _ = await self._retrieval.response(response_id, owner)
            check_same_body(request, response.created)
            return queued
        try:
            story = await self._retrieval.story(response_id, owner)
        except ResponseNotFoundError:
            return None  # Its time is over, or its end was never stored.
        check_same_body(request, story.response.created)
        return story

"""The chain a request continues: read from the log, waiting a moment for a write that is under way."""

import asyncio
from collections.abc import Mapping

from app.live import LiveTurn
from app.settings import chain_write_wait_s
from domain.continuation import check_chain, check_continuable
from domain.conversation import Chain
from domain.errors import PreviousResponseNotFoundError, StorageTimeoutError
from domain.ports import Clock, EventReader
from domain.response import fold_stored


class Chains:
    """Finds the chain behind a `previous_response_id`.

    Args:
        live: the turns of this process whose last event is not stored yet, by response id.
        max_length: how many responses a chain may have (D-31).
    """

    def __init__(
        self, reader: EventReader, live: Mapping[str, LiveTurn], clock: Clock, *, max_length: int
    ) -> None:
        self._reader = reader
        self._live = live
        self._clock = clock
        self._max_length = max_length

    async def resolve(self, previous_id: str | None) -> Chain:
        """The responses that lead up to the new turn, oldest first; none if it starts a conversation.

        Raises:
            PreviousResponseNotFoundError, PreviousResponseNotCompletedError, ChainTooLongError: see
                `domain.continuation`.
            StorageTimeoutError: the response has ended but its write has not settled in time (R-120).
        """
        if previous_id is None:
            return ()
        await self._until_stored(previous_id)
        groups = await asyncio.wrap_future(self._reader.chain(previous_id, limit=self._max_length))
        chain = [fold_stored(recorded.event for recorded in group) for group in groups]
        check_chain(previous_id, chain, now_s=self._clock.now_ms() // 1000, limit=self._max_length)
        return chain

    async def _until_stored(self, previous_id: str) -> None:
        """Give the write of a response that has just ended the time to land (R-117)."""
        turn = self._live.get(previous_id)
        if turn is None:
            return
        if not turn.response.created.store:
            # It was never to be found, and a running one is no exception (D-30).
            raise PreviousResponseNotFoundError(previous_id)
        check_continuable(turn.response)
        if not await turn.until_settled(chain_write_wait_s()):
            raise StorageTimeoutError(previous_id)

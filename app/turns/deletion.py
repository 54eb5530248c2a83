"""Deletes responses: of their owner, of a conversation, of a person (D-40).

What was said is removed before the answer is given; that it was there stays for auditors.
"""

import asyncio
from typing import Protocol

from turnlog.app.turns.live_turns import LiveTurns
from turnlog.domain.audit.filters import MAX_LIMIT, AuditFilter
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.errors import IllegalTransitionError, ResponseNotFoundError, StorageTimeoutError
from turnlog.domain.ports import AuditReader, Clock, ContentEraser


class Cancels(Protocol):
    """Stops turns."""

    async def cancel(self, response_id: str, owner: str | None) -> object:
        """Stop a turn of `owner`, anybody's if that is None; without effect if none is queued or running."""


class Deletion:
    """Deletes what is in one log. Turns that are queued or running are cancelled first."""

    def __init__(
        self,
        *,
        cancellation: Cancels,
        log: AuditReader,
        eraser: ContentEraser,
        live: LiveTurns,
        clock: Clock,
    ) -> None:
        self._cancellation = cancellation
        self._log = log
        self._eraser = eraser
        self._live = live
        self._clock = clock

    async def delete(self, response_id: str, owner: str) -> None:
        """Delete a response of `owner`, who asks for it.

        Raises:
            ResponseNotFoundError: there is none, it has expired, or is deleted already.
            StorageTimeoutError: its end is still being written; nothing is deleted.
            StorageError: the store failed; the response may be deleted, or still be there.
        """
        turn = self._live.of(response_id, owner)
        await self._cancellation.cancel(response_id, owner)
        if turn and not turn.response.created.store:
            return
        row = await asyncio.wrap_future(self._log.row(response_id, owner=owner))
        if row is None or row.expires_at <= self._clock.now_ms() // 1000:
            raise ResponseNotFoundError(response_id)
        if not await self._delete(response_id, owner):
            raise ResponseNotFoundError(response_id)

    async def erase(self, response_id: str, asked_by: str) -> int:
        """Delete a response, whoever's; how many were deleted, 0 if it has no content any more.

        Raises:
            ResponseNotFoundError: there is none.
            StorageTimeoutError, StorageError: see `delete`.
        """
        row = await asyncio.wrap_future(self._log.row(response_id))
        if row is None:
            raise ResponseNotFoundError(response_id)
        return await self._erase([row], asked_by)

    async def erase_chain(self, response_id: str, asked_by: str) -> int:
        """Delete every response of the conversation that this one is part of; how many. Raises as `erase`."""
        rows = await asyncio.wrap_future(self._log.family(response_id))
        if not rows:
            raise ResponseNotFoundError(response_id)
        return await self._erase(rows, asked_by)

    async def erase_owner(self, owner: str, asked_by: str) -> int:
        """Delete every response of an owner; how many. Raises as `erase`."""
        count, after, has_more = 0, None, True
        while has_more:
            wanted = AuditFilter(owner=owner, order="asc", limit=MAX_LIMIT, after=after)
            page = await asyncio.wrap_future(self._log.find(wanted))
            count += await self._erase(page.rows, asked_by)
            after, has_more = page.rows[-1].response_id if page.rows else None, page.has_more
        return count

    async def _erase(self, rows: list[AuditRow], asked_by: str) -> int:
        count = 0
        # What continues a response goes before it, as long as it may still run.
        for row in reversed(rows):
            await self._cancellation.cancel(row.response_id, None)
            count += await self._delete(row.response_id, asked_by)
        return count

    async def _delete(self, response_id: str, asked_by: str) -> int:
        """Delete a response that has ended, and wait until its content is removed."""
        if self._live.of(response_id, None):
            raise StorageTimeoutError(response_id)
        deletion = self._eraser.delete(response_id, at_ms=self._clock.now_ms(), asked_by=asked_by)
        try:
            count = await asyncio.wrap_future(deletion)
        except IllegalTransitionError:
            raise StorageTimeoutError(response_id) from None
        while count and not await self._is_removed(response_id):
            step = self._eraser.expire(self._clock.now_ms() // 1000, spare=self._live.ids)
            await asyncio.wrap_future(step)
        return count

    async def _is_removed(self, response_id: str) -> bool:
        row = await asyncio.wrap_future(self._log.row(response_id))
        return row is None or row.expired

"""Deletes single responses, conversations, and everything of an owner (D-40).

The content is removed before the request is answered; the metadata stays for auditors.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

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
    """Deletes responses of one log. Turns that are queued or running are cancelled first.

    Args:
        open_ids: the responses that will get more events.
    """

    def __init__(
        self,
        *,
        cancellation: Cancels,
        log: AuditReader,
        eraser: ContentEraser,
        live: LiveTurns,
        open_ids: Callable[[], frozenset[str]],
        clock: Clock,
    ) -> None:
        self._cancellation = cancellation
        self._log = log
        self._eraser = eraser
        self._live = live
        self._open_ids = open_ids
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
        if await asyncio.wrap_future(self._log.row(response_id)) is None:
            raise ResponseNotFoundError(response_id)
        return await self._erase_all(AuditFilter(chain=response_id, limit=MAX_LIMIT), asked_by)

    async def erase_owner(self, owner: str, asked_by: str) -> int:
        """Delete every response of an owner; how many. Raises as `erase`."""
        return await self._erase_all(AuditFilter(owner=owner, limit=MAX_LIMIT), asked_by)

    async def _erase_all(self, wanted: AuditFilter, asked_by: str) -> int:
        """Delete what the filter admits, newest first: what continues a response goes before it."""
        count, has_more = 0, True
        while has_more:
            page = await asyncio.wrap_future(self._log.find(wanted))
            count += await self._erase(page.rows, asked_by)
            wanted, has_more = replace(wanted, after=page.last_id), page.has_more
        return count

    async def _erase(self, rows: Sequence[AuditRow], asked_by: str) -> int:
        count = 0
        for row in rows:
            await self._cancellation.cancel(row.response_id, None)
            count += await self._delete(row.response_id, asked_by)
        return count

    async def _delete(self, response_id: str, asked_by: str) -> int:
        """Delete a response that has ended, and wait until its content is removed."""
        if response_id in self._open_ids():
            raise StorageTimeoutError(response_id)
        deletion = self._eraser.delete(response_id, at_ms=self._clock.now_ms(), asked_by=asked_by)
        try:
            count = await asyncio.wrap_future(deletion)
        except IllegalTransitionError:
            raise StorageTimeoutError(response_id) from None
        while count and not await self._is_removed(response_id):
            step = self._eraser.expire(self._clock.now_ms() // 1000, spare=self._open_ids())
            await asyncio.wrap_future(step)
        return count

    async def _is_removed(self, response_id: str) -> bool:
        row = await asyncio.wrap_future(self._log.row(response_id))
        return row is None or row.expired

"""Changes the metadata of responses that have ended."""

import asyncio
from collections.abc import Callable
from typing import Any

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.domain.errors import ResponseNotFoundError, StorageTimeoutError
from turnlog.domain.ports import Clock, MetadataWriter


class MetadataChanges:
    """Changes the metadata of one log.

    Args:
        open_ids: the responses that will get more events.
    """

    def __init__(
        self, writer: MetadataWriter, live: LiveTurns, open_ids: Callable[[], frozenset[str]], clock: Clock
    ) -> None:
        self._writer = writer
        self._live = live
        self._open_ids = open_ids
        self._clock = clock

    async def change(self, response_id: str, owner: str, metadata: dict[str, Any]) -> None:
        """Put this metadata in place of what a response of `owner` had, who was found to have it.

        Raises:
            ResponseNotFoundError: it was deleted or has expired meanwhile.
            StorageTimeoutError: its end is still being written.
        """
        if turn := self._live.of(response_id, owner):
            await turn.until_settled(chain_write_wait_s())
        if response_id in self._open_ids():
            raise StorageTimeoutError(response_id)
        change = self._writer.change_metadata(response_id, metadata, at_ms=self._clock.now_ms())
        if not await asyncio.wrap_future(change):
            raise ResponseNotFoundError(response_id)

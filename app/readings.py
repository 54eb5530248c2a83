"""What happened to a response, for those who ask afterwards: from memory while it runs, then from the log."""

import asyncio
from collections.abc import Mapping

from app.live import LiveTurn
from app.persistence import PendingAppends
from app.settings import chain_write_wait_s
from domain.errors import ResponseNotFoundError, StorageTimeoutError
from domain.events import Recorded, ResponseCreated, ResponseEvent
from domain.ports import Clock, EventReader
from domain.response import Response, fold_stored


class Readings:
    """Finds responses and their events; one that has expired is not found (R-111)."""

    def __init__(
        self, reader: EventReader, live: Mapping[str, LiveTurn], pending: PendingAppends, clock: Clock
    ) -> None:
        self._reader = reader
        self._live = live
        self._pending = pending
        self._clock = clock

    def live(self, response_id: str) -> LiveTurn | None:
        """The turn, if its last event is not stored yet."""
        return self._live.get(response_id)

    async def response(self, response_id: str) -> Response:
        """The response as far as it has come.

        Raises:
            ResponseNotFoundError, StorageTimeoutError: see `story`.
        """
        if turn := self.live(response_id):
            return turn.response
        return fold_stored(await self.story(response_id))

    async def story(self, response_id: str) -> list[ResponseEvent]:
        """The stored events of a response that has ended: those from which it can be told whole.

        Raises:
            ResponseNotFoundError: there is none, it has expired, or its end could not be stored.
            StorageTimeoutError: its end is still being written.
        """
        events = [recorded.event for recorded in await self._stored(response_id)]
        if not events or fold_stored(events).ended is None:
            if response_id in self._pending:
                raise StorageTimeoutError(response_id)
            raise ResponseNotFoundError(response_id)
        return events

    async def events(self, response_id: str) -> list[Recorded]:
        """The stored events of a response, in order; those of a turn that has just ended may take a moment.

        Raises:
            ResponseNotFoundError: none are stored, or it has expired.
        """
        turn = self.live(response_id)
        if turn and turn.response.ended is not None:
            await turn.until_settled(chain_write_wait_s())
        events = await self._stored(response_id)
        if not events:
            raise ResponseNotFoundError(response_id)
        return events

    async def _stored(self, response_id: str) -> list[Recorded]:
        """The stored events; none if there are none or the response has expired."""
        events = await asyncio.wrap_future(self._reader.events(response_id))
        if events and _expires_at(events[0]) <= self._clock.now_ms() // 1000:
            return []
        return events


def _expires_at(first: Recorded) -> int:
    assert isinstance(first.event, ResponseCreated), f"a response begins with {first}"
    return first.event.expires_at

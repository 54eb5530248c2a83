"""What happened to a response, for those who ask afterwards: from memory while it runs, then from the log."""

import asyncio
from collections.abc import Mapping

from app.live import LiveTurn
from app.settings import chain_write_wait_s
from domain.errors import ResponseNotFoundError
from domain.events import Recorded, ResponseCreated
from domain.ports import Clock, EventReader
from domain.response import Response, fold_stored


class Readings:
    """Finds responses and their events; one that has expired is not found (R-111)."""

    def __init__(self, reader: EventReader, live: Mapping[str, LiveTurn], clock: Clock) -> None:
        self._reader = reader
        self._live = live
        self._clock = clock

    def live(self, response_id: str) -> LiveTurn | None:
        """The turn, if its last event is not stored yet."""
        return self._live.get(response_id)

    async def response(self, response_id: str) -> Response:
        """The response as far as it has come.

        Raises:
            ResponseNotFoundError: there is none, or it has expired.
        """
        if turn := self.live(response_id):
            return turn.response
        return fold_stored(recorded.event for recorded in await self.events(response_id))

    async def events(self, response_id: str) -> list[Recorded]:
        """The stored events of a response, in order; those of a turn that has just ended may take a moment.

        Raises:
            ResponseNotFoundError: none are stored, or it has expired.
        """
        turn = self.live(response_id)
        if turn and turn.ended.is_set():
            await turn.until_settled(chain_write_wait_s())
        events = await asyncio.wrap_future(self._reader.events(response_id))
        if not events or _expires_at(events[0]) <= self._clock.now_ms() // 1000:
            raise ResponseNotFoundError(response_id)
        return events


def _expires_at(first: Recorded) -> int:
    assert isinstance(first.event, ResponseCreated), f"a response begins with {first}"
    return first.event.expires_at

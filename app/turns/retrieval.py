"""What happened to a response, for those who ask afterwards: from memory while it runs, then from the log."""

import asyncio

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.persistence import PendingAppends
from turnlog.domain.errors import ResponseNotFoundError, StorageTimeoutError
from turnlog.domain.events import Recorded, ResponseCreated, ResponseEvent
from turnlog.domain.owners import LOCAL_OWNER
from turnlog.domain.ports import Clock, EventReader
from turnlog.domain.response import Response, fold_stored


class Readings:
    """Finds an owner's responses and their events; one that has expired is not found (R-111).

    One of another owner is not found either, and is looked for in the same way: what is known of it in
    memory makes no difference (D-18).
    """

    def __init__(self, reader: EventReader, live: LiveTurns, pending: PendingAppends, clock: Clock) -> None:
        self._reader = reader
        self._live = live
        self._pending = pending
        self._clock = clock

    def live(self, response_id: str, owner: str = LOCAL_OWNER) -> LiveTurn | None:
        """The turn, if its last event is not stored yet."""
        return self._live.of(response_id, owner)

    async def response(self, response_id: str, owner: str = LOCAL_OWNER) -> Response:
        """The response as far as it has come.

        Raises:
            ResponseNotFoundError, StorageTimeoutError: see `story`.
        """
        if turn := self.live(response_id, owner):
            return turn.response
        return fold_stored(await self.story(response_id, owner))

    async def story(self, response_id: str, owner: str = LOCAL_OWNER) -> list[ResponseEvent]:
        """The stored events of a response that has ended: those from which it can be told whole.

        Raises:
            ResponseNotFoundError: there is none, it has expired, or its end could not be stored.
            StorageTimeoutError: its end is still being written.
        """
        events = [recorded.event for recorded in await self._stored(response_id, owner)]
        if not events or fold_stored(events).ended is None:
            if self._pending.concerns(response_id, owner):
                raise StorageTimeoutError(response_id)
            raise ResponseNotFoundError(response_id)
        return events

    async def events(self, response_id: str, owner: str = LOCAL_OWNER) -> list[Recorded]:
        """The stored events of a response, in order; those of a turn that has just ended may take a moment.

        Raises:
            ResponseNotFoundError: none are stored, or it has expired.
        """
        turn = self.live(response_id, owner)
        if turn and turn.response.ended is not None:
            await turn.until_settled(chain_write_wait_s())
        events = await self._stored(response_id, owner)
        if not events:
            raise ResponseNotFoundError(response_id)
        return events

    async def _stored(self, response_id: str, owner: str) -> list[Recorded]:
        """The stored events; none if there are none, the response is another owner's or it has expired."""
        events = await asyncio.wrap_future(self._reader.events(response_id))
        if events and not self._is_visible(events[0].event, owner):
            return []
        return events

    def _is_visible(self, created: ResponseEvent, owner: str) -> bool:
        assert isinstance(created, ResponseCreated), f"a response begins with {created}"
        return created.owner == owner and created.expires_at > self._clock.now_ms() // 1000

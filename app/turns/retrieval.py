"""The one finder of responses: in memory while they run, then in the log.

Whose a response is, whether it has expired and whether its end is still being written is decided here, for
whatever asks: GET, streams, events, chains, item references, replay and audit.
"""

import asyncio
from collections.abc import Sequence, Set
from typing import NamedTuple, Protocol

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.persistence import PendingAppends
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.errors import (
    ContentExpiredError,
    ForbiddenError,
    NotEndedError,
    ResponseNotFoundError,
    ResponsesError,
    StorageTimeoutError,
)
from turnlog.domain.events import Recorded, ResponseCreated, ResponseEvent
from turnlog.domain.items import Item
from turnlog.domain.owners import LOCAL_OWNER, Caller
from turnlog.domain.ports import AuditReader, Clock, EventReader
from turnlog.domain.response import Response, fold_stored


class Log(EventReader, AuditReader, Protocol):
    """The log that responses are found in."""


class Story(NamedTuple):
    """A response that has ended, with the stored events from which it can be told whole."""

    response: Response
    events: list[ResponseEvent]
    expires_at: int


class Found(NamedTuple):
    """A response as far as it has come, and the Unix time in seconds from which it is gone (D-37).

    None if it is not to be stored.
    """

    response: Response
    expires_at: int | None


class Retrieval:
    """Finds responses: an owner's by `owner`, everybody's for auditors and operators.

    For an owner, one that has expired is not there (R-111). Neither is another owner's, which is looked for
    in the same way: what is known of it in memory makes no difference (D-18).
    """

    def __init__(self, log: Log, live: LiveTurns, pending: PendingAppends, clock: Clock) -> None:
        self._log = log
        self._live = live
        self._pending = pending
        self._clock = clock

    def live(self, response_id: str, owner: str = LOCAL_OWNER) -> LiveTurn | None:
        """The turn, if its last event is not stored yet."""
        return self._live.of(response_id, owner)

    async def response(self, response_id: str, owner: str = LOCAL_OWNER) -> Found:
        """The response as far as it has come; raises what `story` raises."""
        if turn := self.live(response_id, owner):
            return Found(turn.response, turn.expires_at)
        story = await self.story(response_id, owner)
        return Found(story.response, story.expires_at)

    async def story(self, response_id: str, owner: str = LOCAL_OWNER) -> Story:
        """A response that has ended.

        Raises:
            ResponseNotFoundError: there is none, it has expired, or its end could not be stored.
            StorageTimeoutError: its end is still being written.
        """
        # Asked before the look-up: a write that settles while it runs must not turn its miss into a 404.
        awaited = self._pending.concerns(response_id, owner)
        stored, expires_at = await self._visible(response_id, owner)
        otherwise = StorageTimeoutError(response_id) if awaited else ResponseNotFoundError(response_id)
        return _whole(stored, expires_at, otherwise)

    async def events(self, response_id: str, owner: str = LOCAL_OWNER) -> list[Recorded]:
        """The stored events of a response, in order; those of a turn that has just ended may take a moment.

        Raises:
            ResponseNotFoundError: none are stored, or it has expired.
        """
        if (turn := self.live(response_id, owner)) and turn.response.ended is not None:
            await turn.until_settled(chain_write_wait_s())
        events, _ = await self._visible(response_id, owner)
        if not events:
            raise ResponseNotFoundError(response_id)
        return events

    async def chain(self, response_id: str, owner: str, *, limit: int) -> list[Response]:
        """A response that has ended and what of its ancestors is stored, oldest first, `limit` + 1 at most.

        None if it is not there or its end is not stored: its last write is under way, or failed.
        """
        found = self._log.chain(response_id, limit=limit, now_s=self._now_s)
        groups = await asyncio.wrap_future(found)
        # A chain has one owner; another's is not even folded, which would take its time.
        if not groups or _owner_of(groups[-1]) != owner:
            return []
        chain = [fold_stored(recorded.event for recorded in group) for group in groups]
        return chain if chain[-1].ended else []

    async def has_expired(self, response_id: str, owner: str) -> bool:
        """Whether the owner had a response of that id, and its time is over."""
        events, expires_at = await asyncio.wrap_future(self._log.dated(response_id))
        return bool(events) and _owner_of(events) == owner and expires_at <= self._now_s

    async def items(self, item_ids: Set[str], owner: str) -> dict[str, Item]:
        """The owner's output items of those ids, by id; those not there are left out."""
        live = self._live.items_of(owner, item_ids)
        stored = self._log.items(item_ids - live.keys(), now_s=self._now_s, owner=owner)
        return await asyncio.wrap_future(stored) | live

    async def stored(self, response_id: str) -> tuple[AuditRow, list[Recorded]]:
        """A response as far as it is stored, whoever's, also when it has expired.

        Raises:
            ResponseNotFoundError: nothing of it is stored.
        """
        row = await asyncio.wrap_future(self._log.row(response_id))
        events = await asyncio.wrap_future(self._log.events(response_id)) if row else []
        if row is None or not events:
            raise ResponseNotFoundError(response_id)
        return row, events

    async def original(self, response_id: str, caller: Caller) -> Story:
        """A response that has ended, whoever's, if the caller may replay it.

        Raises:
            ResponseNotFoundError: there is none.
            NotEndedError: it has not ended, or its end was never stored.
            StorageTimeoutError: its end is still being written.
            ContentExpiredError: its content was removed, or is about to be.
            ForbiddenError: the caller may not read what was said in it.
        """
        if turn := self._live.of(response_id, None):
            if turn.response.ended is None:
                raise NotEndedError(response_id)
            if not await turn.until_settled(chain_write_wait_s()):
                raise StorageTimeoutError(response_id)
        awaited = response_id in self._pending
        row, events = await self.stored(response_id)
        if row.expired or row.expires_at <= self._now_s:
            raise ContentExpiredError(response_id)
        otherwise = StorageTimeoutError(response_id) if awaited else NotEndedError(response_id)
        story = _whole(events, row.expires_at, otherwise)
        if not await self.reads_content(caller, row):
            raise ForbiddenError("An operator may replay turns that failed; this one did not.")
        return story

    async def reads_content(self, caller: Caller, row: AuditRow) -> bool:
        """Whether the caller may read what was said in a turn, and so run it again."""
        return caller.reads_content(failed=False) or (
            caller.reads_content(failed=True) and await self._failed(row)
        )

    async def _failed(self, row: AuditRow) -> bool:
        """Whether the turn failed, or replays one that did, maybe by way of other replays."""
        met: set[str] = set()
        found: AuditRow | None = row
        while found and not found.reason and (earlier := found.replay_of) and earlier not in met:
            met.add(earlier)
            found = await asyncio.wrap_future(self._log.row(earlier))
        return found is not None and found.reason is not None

    @property
    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000

    async def _visible(self, response_id: str, owner: str) -> tuple[list[Recorded], int]:
        """The stored events, and when they are gone.

        None if there are none, the response is another owner's or it has expired.
        """
        events, expires_at = await asyncio.wrap_future(self._log.dated(response_id))
        visible = events and _owner_of(events) == owner and expires_at > self._now_s
        return events if visible else [], expires_at


def _whole(stored: Sequence[Recorded], expires_at: int, otherwise: ResponsesError) -> Story:
    """The story, if its end is stored."""
    events = [recorded.event for recorded in stored]
    response = fold_stored(events) if events else None
    if response and response.ended:
        return Story(response, events, expires_at)
    raise otherwise


def _owner_of(events: Sequence[Recorded]) -> str:
    created = events[0].event
    assert isinstance(created, ResponseCreated), f"a response begins with {created}"
    return created.owner

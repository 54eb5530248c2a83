"""Finds responses: in memory while they run, then in the log.

Ownership, expiry and a final write still in flight are handled here, for every reader: GET, streams, events,
chains, item references, replay and audit.
"""

import asyncio
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.in_flight import MOST_READS, InTurn, OwnerPlaces, at_once
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.persistence import PendingAppends
from turnlog.app.turns.queued_turns import QueuedTurn
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.audit.rows import AuditPage, AuditRow
from turnlog.domain.errors import (
    ContentExpiredError,
    ForbiddenError,
    NotEndedError,
    ResponseNotFoundError,
    ResponsesError,
    StorageTimeoutError,
)
from turnlog.domain.events import Recorded, ResponseEvent
from turnlog.domain.items import Item
from turnlog.domain.owners import LOCAL_OWNER, Caller
from turnlog.domain.ports import AuditReader, Clock, EventReader
from turnlog.domain.response import Response, fold_stored

_Folded = TypeVar("_Folded")

_FEW_EVENTS = 50
"""So many are folded faster than a thread starts; more would stall all streams."""


class Log(EventReader, AuditReader, Protocol):
    """The log that responses are found in."""


class Story(NamedTuple):
    """A response that has ended, with all its stored events."""

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

    For an owner, an expired response does not exist (R-111). Neither does another owner's, even if it is in
    memory (D-18). Whoever reads a whole response or chain for an owner holds one of the owner's `places`
    until it is let go.
    """

    def __init__(
        self,
        log: Log,
        live: LiveTurns,
        pending: PendingAppends,
        clock: Clock,
        *,
        in_turn: InTurn = at_once,
    ) -> None:
        self._log = log
        self._live = live
        self._pending = pending
        self._clock = clock
        self._in_turn = in_turn
        self.places = OwnerPlaces("owner_reads", MOST_READS)

    def live(self, response_id: str, owner: str = LOCAL_OWNER) -> LiveTurn | None:
        """The turn, if its last event is not stored yet."""
        return self._live.of(response_id, owner)

    def queued(self, response_id: str, owner: str = LOCAL_OWNER) -> QueuedTurn | None:
        """The turn, if it is in the background and has not begun."""
        return self._live.queued.of(response_id, owner)

    async def response(self, response_id: str, owner: str = LOCAL_OWNER) -> Found:
        """The response as far as it has come; raises what `story` raises."""
        if turn := self.live(response_id, owner):
            return Found(turn.response, turn.expires_at)
        if self.queued(response_id, owner):
            stored, expires_at = await self._visible(response_id, owner)
            # It may have begun meanwhile, and be ahead of what is stored.
            if turn := self.live(response_id, owner):
                return Found(turn.response, turn.expires_at)
            if stored:
                return Found(fold_stored(recorded.event for recorded in stored), expires_at)
        story = await self.story(response_id, owner)
        return Found(story.response, story.expires_at)

    async def story(self, response_id: str, owner: str = LOCAL_OWNER) -> Story:
        """A response that has ended.

        Raises:
            ResponseNotFoundError: there is none, it is deleted or expired, or its end could not be stored.
            StorageTimeoutError: its end is still being written.
        """
        # Asked before the look-up: a write that settles while it runs must not turn its miss into a 404.
        awaited = self._pending.concerns(response_id, owner)
        stored, expires_at = await self._visible(response_id, owner)
        otherwise = StorageTimeoutError(response_id) if awaited else ResponseNotFoundError(response_id)
        return await self._off_loop(owner, len(stored), partial(_whole, stored, expires_at, otherwise))

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
        found = self._log.chain(response_id, limit=limit, now_s=self._now_s, owner=owner)
        groups = await asyncio.wrap_future(found)
        if not groups:
            return []
        chain = await self._off_loop(owner, sum(map(len, groups)), partial(_folded, groups))
        return chain if chain[-1].ended else []

    async def context(self, response_id: str, owner: str, *, limit: int) -> list[Response]:
        """A response in any state and what of its ancestors is there, oldest first; raises as `response`."""
        response = (await self.response(response_id, owner)).response
        previous = response.created.previous_response_id
        return [*(await self.chain(previous, owner, limit=limit) if previous else []), response]

    async def has_expired(self, response_id: str, owner: str) -> bool:
        """Whether the log has an expired or deleted response of the owner's with that id."""
        events, expires_at = await asyncio.wrap_future(self._log.dated(response_id, owner=owner))
        return bool(events) and expires_at <= self._now_s

    async def is_there(self, response_id: str, owner: str) -> bool:
        """Whether the log has the owner's response still, neither expired nor deleted; costs little."""
        return await asyncio.wrap_future(self._log.expiry(response_id, owner=owner)) > self._now_s

    async def latest_under_key(self, key_digest: str, *, since_ms: int) -> str | None:
        """The newest stored response under an idempotency key that has not failed; None if there is none."""
        return await asyncio.wrap_future(self._log.latest_under_key(key_digest, since_ms=since_ms))

    async def items(self, item_ids: Set[str], owner: str) -> dict[str, Item]:
        """The owner's output items of those ids, by id; those not there are left out."""
        live = self._live.items_of(owner, item_ids)
        stored = self._log.items(item_ids - live.keys(), now_s=self._now_s, owner=owner)
        return await asyncio.wrap_future(stored) | live

    async def page(self, wanted: AuditFilter, owner: str) -> tuple[AuditPage, list[Response]]:
        """A page of the owner's responses, and those of it that are there to be read.

        Raises:
            InvalidRequestError: the owner has no response `wanted.after`.
        """
        page = await asyncio.wrap_future(self._log.find(replace(wanted, owner=owner), asked_by=owner))
        found = [await self._visible(row.response_id, owner) for row in page.rows]
        stories = ([recorded.event for recorded in stored] for stored, _ in found if stored)
        return page, [fold_stored(events) for events in stories]

    async def stored(self, response_id: str) -> tuple[AuditRow, list[Recorded]]:
        """The stored part of a response of any owner, even an expired one.

        Raises:
            ResponseNotFoundError: nothing of it is stored.
        """
        row = await asyncio.wrap_future(self._log.row(response_id))
        events = await asyncio.wrap_future(self._log.events(response_id)) if row else []
        if row is None or not events:
            raise ResponseNotFoundError(response_id)
        return row, events

    async def original(self, response_id: str, caller: Caller) -> Story:
        """A response of any owner that has ended, if the caller may replay it.

        Raises:
            ResponseNotFoundError: there is none.
            NotEndedError: it has not ended, or its end was never stored.
            StorageTimeoutError: its end is still being written.
            ContentExpiredError: its content was removed, or is about to be.
            ForbiddenError: the caller may not read its content.
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
        story = await self._off_loop(
            row.owner, len(events), partial(_whole, events, row.expires_at, otherwise)
        )
        if not await self.reads_content(caller, row):
            raise ForbiddenError("Operators may replay failed turns only.")
        return story

    async def reads_content(self, caller: Caller, row: AuditRow) -> bool:
        """Whether the caller may read a turn's content, and so run it again."""
        return caller.reads_content(failed=False) or (
            caller.reads_content(failed=True) and await self._failed(row)
        )

    async def _failed(self, row: AuditRow) -> bool:
        """Whether the turn failed or replays one that did, possibly through other replays."""
        met: set[str] = set()
        found: AuditRow | None = row
        while found and not found.reason and (earlier := found.replay_of) and earlier not in met:
            met.add(earlier)
            found = await asyncio.wrap_future(self._log.row(earlier))
        return found is not None and found.reason is not None

    async def _off_loop(self, owner: str, events: int, fold: Callable[[], _Folded]) -> _Folded:
        """What `fold` makes of so many events, on a thread if they are many."""
        if events <= _FEW_EVENTS:
            return fold()
        return await asyncio.wrap_future(self._in_turn(owner, fold))

    @property
    def _now_s(self) -> int:
        return self._clock.now_ms() // 1000

    async def _visible(self, response_id: str, owner: str) -> tuple[list[Recorded], int]:
        """The stored events and when they expire; none if the owner has no such response or it expired."""
        events, expires_at = await asyncio.wrap_future(self._log.dated(response_id, owner=owner))
        return events if expires_at > self._now_s else [], expires_at


def _whole(stored: Sequence[Recorded], expires_at: int, otherwise: ResponsesError) -> Story:
    """The story, if its end is stored."""
    events = [recorded.event for recorded in stored]
    response = fold_stored(events) if events else None
    if response and response.ended:
        return Story(response, events, expires_at)
    raise otherwise


def _folded(groups: Sequence[Sequence[Recorded]]) -> list[Response]:
    return [fold_stored(recorded.event for recorded in group) for group in groups]

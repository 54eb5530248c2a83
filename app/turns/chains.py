"""The chain a request continues: read from the log, waiting for a write in flight (R-115 … R-126).

A turn that has ended may not be in the store yet, and its client may already want to continue it. So a
look-up that finds nothing is a 404 only if no write is pending; `TABLE` has the other cases.
"""

import asyncio
import logging
from enum import Enum
from typing import NamedTuple

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.persistence import PendingAppends
from turnlog.app.turns.retrieval import Retrieval
from turnlog.app.turns.unstored import UnstoredTurns
from turnlog.domain.continuation import check_chain, check_continuable
from turnlog.domain.conversation import Chain
from turnlog.domain.errors import (
    ChainReadError,
    ChainTooLargeError,
    NotFoundError,
    PreviousResponseExpiredError,
    PreviousResponseNotCompletedError,
    PreviousResponseNotFoundError,
    StorageTimeoutError,
    UnavailableError,
)
from turnlog.domain.owners import LOCAL_OWNER
from turnlog.domain.ports import Clock
from turnlog.domain.response import Response

log = logging.getLogger("turnlog")


class Wait(Enum):
    """The result of waiting for the missing response's write."""

    NO_WRITE = "no write in flight"
    SETTLED = "settled in time"
    TIMED_OUT = "timed out"


class Answer(Enum):
    """The answer to the request, by its HTTP status."""

    CONTINUE = 200
    NOT_FOUND = 404
    STORAGE_TIMEOUT = 503


class Row(NamedTuple):
    """One line of the table: the answer to a first miss, and the warning to log."""

    wait: Wait
    found: bool | None
    marked: bool | None
    expired: bool | None
    answer: Answer
    warning: str = ""

    def meets(self, *facts: object) -> bool:
        """Whether the line matches these facts, given in the order of its columns."""
        cells = (self.wait, self.found, self.marked, self.expired)
        return all(cell in (fact, ANY) for cell, fact in zip(cells, facts, strict=True))


YES, NO, ANY = True, False, None
FOUND, MISS = True, False

FOUND_SLOW = "the write of %s is slow; the last look-up found it"
EXPIRED = "the write of %s did not settle in time, and it has expired by now"
TIMED_OUT = "the write of %s did not settle in time; the client may retry"
FOUND_LATE = "the write of %s was past its hard limit and has landed"
WEDGED = "the write of %s is past its hard limit; the client may retry"

# R-124, when the first look-up missed; "later look-up" is the last of them. An error of the store is 500 at
# any look-up (`ChainReadError`); "no store configured" cannot be. Aligned, to be read beside the table.
# fmt: off
TABLE = (
    #   in flight?, wait  later look-up  live marker?  expired?  answer
    Row(Wait.SETTLED,     FOUND,         NO,           ANY,      Answer.CONTINUE),
    Row(Wait.SETTLED,     MISS,          NO,           ANY,      Answer.NOT_FOUND),
    Row(Wait.SETTLED,     FOUND,         YES,          ANY,      Answer.CONTINUE,        FOUND_LATE),
    Row(Wait.SETTLED,     MISS,          YES,          ANY,      Answer.STORAGE_TIMEOUT, WEDGED),
    Row(Wait.TIMED_OUT,   FOUND,         ANY,          ANY,      Answer.CONTINUE,        FOUND_SLOW),
    Row(Wait.TIMED_OUT,   MISS,          ANY,          YES,      Answer.NOT_FOUND,       EXPIRED),
    Row(Wait.TIMED_OUT,   MISS,          ANY,          NO,       Answer.STORAGE_TIMEOUT, TIMED_OUT),
    Row(Wait.NO_WRITE,    FOUND,         YES,          ANY,      Answer.CONTINUE,        FOUND_LATE),
    Row(Wait.NO_WRITE,    MISS,          YES,          ANY,      Answer.STORAGE_TIMEOUT, WEDGED),
    Row(Wait.NO_WRITE,    MISS,          NO,           ANY,      Answer.NOT_FOUND),
)
# fmt: on


def decide(wait: Wait, *, found: bool, marked: bool, expired: bool) -> Row:
    """The line of the table that matches these facts."""
    return next(row for row in TABLE if row.meets(wait, found, marked, expired))


class LookUp(NamedTuple):
    """The result of one look-up: the chain, or why it is missing."""

    chain: Chain = ()
    miss: PreviousResponseNotFoundError | None = None


class Chains:
    """Finds the chain behind a `previous_response_id`.

    Args:
        pending: the writes that have not settled (R-127).
        max_length: how many responses a chain may have (D-31).
    """

    def __init__(
        self, retrieval: Retrieval, pending: PendingAppends, clock: Clock, *, max_length: int
    ) -> None:
        self._retrieval = retrieval
        self.pending = pending
        self._clock = clock
        self._max_length = max_length

    async def resolve(
        self, previous_id: str | None, owner: str = LOCAL_OWNER, unstored: UnstoredTurns | None = None
    ) -> Chain:
        """The responses that lead up to the new turn of `owner`, oldest first; none if it starts one.

        Args:
            unstored: the end of the chain may be among these.

        Raises:
            PreviousResponseNotFoundError, PreviousResponseNotCompletedError, ChainTooLongError: see
                `domain.continuation`.
            PreviousResponseExpiredError: the owner's response, or one before it, has expired (D-37).
            StorageTimeoutError: the response has ended but its write has not settled; retry.
            ChainReadError: the store failed.
        """
        if unstored and previous_id in unstored:
            newer, previous_id = unstored.chain(previous_id)
            return [*await self.resolve(previous_id, owner), *newer]
        if previous_id is None:
            return ()
        turn = self._retrieval.live(previous_id, owner)
        if turn and turn.response.created.store:
            check_continuable(turn.response)
        if self._retrieval.queued(previous_id, owner):
            raise PreviousResponseNotCompletedError(previous_id, "queued")
        # Asked before the look-up: a write that settles while it runs must not turn its miss into a 404.
        awaited = self.pending.concerns(previous_id, owner)
        first = await self._look_up(previous_id, owner)
        if not first.miss:
            return first.chain
        # Another owner's pending write is neither waited for nor revealed (D-18).
        if previous_id in self.pending and not self.pending.concerns(previous_id, owner):
            raise await self._refusal(first.miss, owner)
        return await self._after_a_miss(previous_id, owner, first, awaited=awaited)

    async def _after_a_miss(self, previous_id: str, owner: str, first: LookUp, *, awaited: bool) -> Chain:
        """Gather the facts of the table, column by column, and answer by it (R-116 … R-122)."""
        last = first
        wait = await self._wait_for_write(previous_id, awaited=awaited)
        if wait is not Wait.NO_WRITE:
            last = await self._look_up(previous_id, owner)
        marked = False
        if last.miss and wait is not Wait.TIMED_OUT:
            marked = self.pending.refresh_marker(previous_id, now_ms=self._clock.now_ms())
            if marked:
                last = await self._look_up(previous_id, owner)
        row = decide(wait, found=not last.miss, marked=marked, expired=self._has_expired(previous_id))
        if row.warning:
            log.warning(f"[responses] {row.warning}", previous_id)
        if row.answer is Answer.STORAGE_TIMEOUT:
            raise StorageTimeoutError(previous_id)
        if last.miss:
            raise await self._refusal(last.miss, owner)
        return last.chain

    async def _wait_for_write(self, previous_id: str, *, awaited: bool) -> Wait:
        """Wait for the write in flight, if any, whether it lands or fails (R-118).

        Args:
            awaited: whether it was in flight, or marked, when the look-up began.
        """
        write = self.pending.in_flight(previous_id)
        if write is None:
            settled_since = awaited and previous_id not in self.pending
            return Wait.SETTLED if settled_since else Wait.NO_WRITE
        done, _ = await asyncio.wait((write,), timeout=chain_write_wait_s())
        return Wait.SETTLED if done else Wait.TIMED_OUT

    def _has_expired(self, previous_id: str) -> bool:
        """Whether the write would be of no use if it landed now (R-120)."""
        now_ms = self._clock.now_ms()
        earliest_ms = self.pending.earliest_expiry_ms(previous_id, now_ms=now_ms)
        return earliest_ms is not None and earliest_ms <= now_ms

    async def _look_up(self, previous_id: str, owner: str) -> LookUp:
        """Read the chain; a miss if none of the owner's is stored whole, or a link is gone."""
        chain = await self._read(previous_id, owner)
        try:
            check_chain(previous_id, chain, limit=self._max_length)
        except PreviousResponseNotFoundError as miss:
            return LookUp(miss=miss)
        return LookUp(chain)

    async def _refusal(self, miss: PreviousResponseNotFoundError, owner: str) -> NotFoundError:
        """What the owner is told of a chain that is not there; of another's it is told nothing (D-18)."""
        try:
            expired = await self._retrieval.has_expired(miss.missing, owner)
        except UnavailableError:
            raise
        except Exception as error:
            raise ChainReadError(miss.response_id, error) from error
        return PreviousResponseExpiredError(miss.response_id, miss.missing) if expired else miss

    async def _read(self, previous_id: str, owner: str) -> list[Response]:
        """The stored responses; none if the owner has none or the store raises `NotFoundError` (R-113)."""
        try:
            return await self._retrieval.chain(previous_id, owner, limit=self._max_length)
        except NotFoundError:
            return []
        except (UnavailableError, ChainTooLargeError):
            raise
        # Any other error: the chain may well exist, so this must not be a 404.
        except Exception as error:
            raise ChainReadError(previous_id, error) from error

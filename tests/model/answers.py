"""What a client that asks for a response must be told, by what is known from outside.

`to_continuation` is R-124, written down again without looking at the code under test.
"""

from enum import Enum, auto
from typing import NamedTuple

from tests.model.known import KnownTurn
from tests.model.store import Disk, Reads
from turnlog.domain.events import TurnCommitted, TurnFailed

FOUND = None
"""The request goes on. Every other answer is the code of an error."""
CHAIN_NOT_FOUND = "previous_response_not_found"
CHAIN_EXPIRED = "previous_response_expired"
NOT_COMPLETED = "previous_response_not_completed"
NOT_FOUND = "response_not_found"
RETRY = "storage_timeout"
BROKEN = "storage_error"


class Stored(Enum):
    """How far the disk has a response."""

    WELL_ENDED = auto()
    FAILED = auto()
    IN_PART = auto()
    EXPIRED = auto()
    NOT_AT_ALL = auto()


GONE = (Stored.EXPIRED, Stored.NOT_AT_ALL)


ENDED = (Stored.WELL_ENDED, Stored.FAILED)


class Moment(NamedTuple):
    """What is so about a response at one moment.

    `alone` is what the disk has of it, `chained` what it has of it and of all the turns before it.
    `unsettled` is whether its last write has begun and not settled; `in_flight` whether moreover the turn was
    committed and the write has not passed the hard limit; `marked` whether it has, and is remembered.
    `useless` is whether it has expired, or its chain has. `told` is the turn, if the server has it in memory.
    """

    alone: Stored
    chained: Stored
    unsettled: bool
    in_flight: bool
    marked: bool
    useless: bool
    told: KnownTurn | None


def stored_alone(disk: Disk, response_id: str, now_ms: int) -> Stored:
    """What the disk has of a response."""
    if disk.created(response_id) is None:
        return Stored.NOT_AT_ALL
    if disk.expires_at(response_id) <= now_ms // 1000:
        return Stored.EXPIRED
    match disk.ends(response_id):
        case [TurnCommitted()]:
            return Stored.WELL_ENDED
        case [TurnFailed()]:
            return Stored.FAILED
        case _:
            return Stored.IN_PART


def stored_chain(disk: Disk, response_id: str, now_ms: int) -> Stored:
    """The same, if it has ended and the disk has all the turns before it too."""
    alone = stored_alone(disk, response_id, now_ms)
    link = response_id if alone in ENDED else None
    while link and (created := disk.created(link)):
        if (gone := stored_alone(disk, link, now_ms)) in GONE:
            return gone
        link = created.previous_response_id
    return Stored.NOT_AT_ALL if link else alone


def to_continuation(asked: Moment, answered: Moment, reads: Reads) -> str | None:
    """The answer to a request that continues the response.

    Args:
        asked: what was so when the request came.
        answered: what was so when it was answered.
    """
    if asked.told and asked.told.stored and not asked.told.committed:
        return NOT_COMPLETED  # it is running, or has failed
    if reads is Reads.FAIL:
        return BROKEN
    if asked.chained is Stored.WELL_ENDED:
        return FOUND
    if asked.chained is Stored.FAILED:
        return NOT_COMPLETED
    # The first look-up has missed; from here on it is the table.
    if reads is Reads.FAIL_LATER:
        return BROKEN
    gone = CHAIN_EXPIRED if answered.chained is Stored.EXPIRED else CHAIN_NOT_FOUND
    if not asked.in_flight and not asked.marked:
        return gone
    if answered.chained is Stored.WELL_ENDED:
        return FOUND
    if not answered.unsettled:
        return gone
    return gone if asked.in_flight and answered.useless else RETRY


def reached_the_marker(code: str | None, reads: Reads) -> bool:
    """Whether a request that got this answer has asked for the marker, which lives on for it (R-132)."""
    return code == RETRY or (code == BROKEN and reads is Reads.FAIL_LATER)


def to_reading(asked: Moment, answered: Moment, reads: Reads) -> tuple[str | None, ...]:
    """The answers that are right for a request to read the response.

    There are two when its write settles while it is looked up: it was under way, and is not any more.
    """
    if asked.told:
        return (FOUND,)
    if reads is Reads.FAIL:
        return (BROKEN,)
    if asked.alone in ENDED:
        return (FOUND,)
    if not asked.marked:
        return (NOT_FOUND,)
    if answered.unsettled:
        return (RETRY,)
    return (RETRY, FOUND if answered.alone in ENDED else NOT_FOUND)

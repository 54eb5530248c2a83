"""What a server does with the turns that its predecessor left unfinished.

A turn that was accepted must end: one that was queued or running when its process died becomes `failed`,
so that it can be seen and run again. One in the background that had not begun is queued again (D-40). A
stored commit is persisted already, and nothing else changes.
"""

import asyncio
import logging
from collections.abc import Callable

from turnlog.domain.errors import StorageError
from turnlog.domain.events import FailureReason, Recorded, ResponseCreated
from turnlog.domain.lifecycle import Status
from turnlog.domain.ports import Clock, EventJournal, EventReader
from turnlog.domain.response import Response, fold

log = logging.getLogger("turnlog")


AT_A_TIME = 200
"""Turns that are read and ended together: the journal stores their ends in few transactions."""


async def recover(
    journal: EventJournal,
    reader: EventReader,
    clock: Clock,
    requeue: Callable[[ResponseCreated], None],
    ended: Callable[[Response], None] = lambda response: None,
) -> int:
    """End every unfinished turn of the log as `server_restart`, or requeue it; how many were ended.

    Steering input that was accepted and not committed fails with it, or alone if the turn has ended.

    Call it before any turn of this process begins: it cannot tell a running turn from a lost one. A turn
    that cannot be read is logged and left, for the others and for an operator.

    Args:
        requeue: takes a turn that had not begun and waits in the background, in the order of their creation.
        ended: takes a turn that was ended.

    Raises:
        StorageError: the log cannot be read or written at all.
    """
    lost = await asyncio.wrap_future(reader.unfinished())
    count = 0
    for start in range(0, len(lost), AT_A_TIME):
        batch = lost[start : start + AT_A_TIME]
        found = await asyncio.gather(*(_end(each, journal, reader, clock) for each in batch))
        for response in filter(None, found):
            if response.ended is None:
                requeue(response.created)
            else:
                ended(response)
                count += 1
    return count


async def _end(response_id: str, journal: EventJournal, reader: EventReader, clock: Clock) -> Response | None:
    """The response, which was ended unless it is to be queued again; None if that failed, or it had ended."""
    try:
        response, version = await _read(response_id, reader)
        if response.created.background and response.status is Status.CREATED:
            return response
        had_ended = response.ended is not None
        await _fail(response, version, "server_restart", journal, clock)
    except StorageError:
        log.exception("[responses] could not fail the turn %s, which a restart interrupted", response_id)
        return None
    if had_ended:
        log.warning("[responses] %s owed steering input, which failed with the restart", response_id)
        return None
    log.warning("[responses] failed the turn %s, which a restart interrupted", response_id)
    return response


async def end_lost(
    response_id: str, reason: FailureReason, journal: EventJournal, reader: EventReader, clock: Clock
) -> None:
    """End a turn that no process runs, and what it owes.

    Raises:
        StorageError: it cannot be read or written.
    """
    response, version = await _read(response_id, reader)
    await _fail(response, version, reason, journal, clock)


async def _fail(
    response: Response, version: int, reason: FailureReason, journal: EventJournal, clock: Clock
) -> None:
    at_ms = clock.now_ms()
    ending = response.fail(reason, at_ms=at_ms) if response.ended is None else []
    ending += response.fail_steers("server_restart", at_ms=at_ms)
    records = [Recorded(response.id, number, event) for number, event in enumerate(ending, start=version + 1)]
    await asyncio.wrap_future(journal.append(records))


async def _read(response_id: str, reader: EventReader) -> tuple[Response, int]:
    """The response as far as it is stored, and the version of its last event."""
    stored = await asyncio.wrap_future(reader.events(response_id))
    return fold(recorded.event for recorded in stored), stored[-1].version

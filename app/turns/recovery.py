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


async def recover(
    journal: EventJournal, reader: EventReader, clock: Clock, requeue: Callable[[ResponseCreated], None]
) -> int:
    """End every unfinished turn of the log as `server_restart`, or requeue it; how many were ended.

    Steering input that was accepted and not committed fails with it, or alone if the turn has ended.

    Call it before any turn of this process begins: it cannot tell a running turn from a lost one. A turn
    that cannot be read is logged and left, for the others and for an operator.

    Raises:
        StorageError: the log cannot be read or written at all.
    """
    lost = await asyncio.wrap_future(reader.unfinished())
    return sum([await _end(response_id, journal, reader, clock, requeue) for response_id in lost])


async def _end(
    response_id: str,
    journal: EventJournal,
    reader: EventReader,
    clock: Clock,
    requeue: Callable[[ResponseCreated], None],
) -> bool:
    try:
        response, _ = await _read(response_id, reader)
        if response.created.background and response.status is Status.CREATED:
            requeue(response.created)
            return False
        await end_lost(response_id, "server_restart", journal, reader, clock)
        if response.ended:
            log.warning("[responses] %s owed steering input, which failed with the restart", response_id)
            return False
    except StorageError:
        log.exception("[responses] could not fail the turn %s, which a restart interrupted", response_id)
        return False
    log.warning("[responses] failed the turn %s, which a restart interrupted", response_id)
    return True


async def end_lost(
    response_id: str, reason: FailureReason, journal: EventJournal, reader: EventReader, clock: Clock
) -> None:
    """End a turn that no process runs, and what it owes.

    Raises:
        StorageError: it cannot be read or written.
    """
    response, version = await _read(response_id, reader)
    at_ms = clock.now_ms()
    ending = response.fail(reason, at_ms=at_ms) if response.ended is None else []
    ending += response.fail_steers("server_restart", at_ms=at_ms)
    records = [Recorded(response_id, number, event) for number, event in enumerate(ending, start=version + 1)]
    await asyncio.wrap_future(journal.append(records))


async def _read(response_id: str, reader: EventReader) -> tuple[Response, int]:
    """The response as far as it is stored, and the version of its last event."""
    stored = await asyncio.wrap_future(reader.events(response_id))
    return fold(recorded.event for recorded in stored), stored[-1].version

"""What a server does with the turns that its predecessor left unfinished.

A turn that was accepted must end: one that was queued or running when its process died becomes `failed`,
so that it can be seen and run again. A stored commit is persisted already, and nothing else changes.
"""

import asyncio
import logging

from turnlog.domain.errors import StorageError
from turnlog.domain.events import Recorded
from turnlog.domain.ports import Clock, EventJournal, EventReader
from turnlog.domain.response import fold

log = logging.getLogger("turnlog")


async def recover(journal: EventJournal, reader: EventReader, clock: Clock) -> int:
    """End every unfinished turn of the log as `server_restart`; how many were ended.

    Call it before any turn of this process begins: it cannot tell a running turn from a lost one. A turn
    that cannot be read is logged and left, for the others and for an operator.

    Raises:
        StorageError: the log cannot be read or written at all.
    """
    lost = await asyncio.wrap_future(reader.unfinished())
    return sum([await _end(response_id, journal, reader, clock) for response_id in lost])


async def _end(response_id: str, journal: EventJournal, reader: EventReader, clock: Clock) -> bool:
    try:
        stored = await asyncio.wrap_future(reader.events(response_id))
        response = fold(recorded.event for recorded in stored)
        ending = response.fail("server_restart", at_ms=clock.now_ms())
        first = stored[-1].version + 1
        records = [Recorded(response_id, version, event) for version, event in enumerate(ending, start=first)]
        await asyncio.wrap_future(journal.append(records))
    except StorageError:
        log.exception("[responses] could not fail the turn %s, which a restart interrupted", response_id)
        return False
    log.warning("[responses] failed the turn %s, which a restart interrupted", response_id)
    return True

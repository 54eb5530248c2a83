"""What a server does with the turns that its predecessor left unfinished.

A turn that was accepted must end: one that was queued or running when its process died becomes `failed`,
so that it can be seen and run again. A stored commit is persisted already, and nothing else changes.
"""

import asyncio
import logging

from domain.events import Recorded, TurnFailed, merged
from domain.ports import Clock, EventJournal, EventReader
from domain.response import fold
from domain.turn import epilogue

log = logging.getLogger("turnlog")


async def recover(journal: EventJournal, reader: EventReader, clock: Clock) -> int:
    """End every unfinished turn of the log as `server_restart`; how many there were.

    Call it before any turn of this process begins: it cannot tell a running turn from a lost one.

    Raises:
        StorageError: the log cannot be read or written.
    """
    lost = await asyncio.wrap_future(reader.unfinished())
    for response_id in lost:
        stored = await asyncio.wrap_future(reader.events(response_id))
        failed = TurnFailed(
            at_ms=clock.now_ms(),
            reason="server_restart",
            message="the server stopped before the turn was done",
        )
        ending = epilogue(fold(recorded.event for recorded in stored), failed)
        version = stored[-1].version
        await asyncio.wrap_future(
            journal.append(
                [
                    Recorded(response_id, version + place, event)
                    for place, event in enumerate(merged(ending), start=1)
                ]
            )
        )
        log.warning("[responses] the turn %s was lost in a restart and is failed now", response_id)
    return len(lost)

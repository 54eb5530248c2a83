"""When a turn's events are stored, and what becomes of the write that holds its commit.

Deltas are gathered for a moment and merged, so that a stored turn is a few rows; everything else is handed
to the journal at once. Nothing here waits for the store but the follower of the last write, a task that no
request waits for (R-083).
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future

from app.live import LiveTurn
from app.settings import persist_hard_limit_s, persist_soft_limit_s
from domain.events import (
    ItemExtended,
    ItemOpened,
    PersistHardTimedOut,
    Recorded,
    ResponseEvent,
    TurnCommitted,
    TurnPersisted,
    merged,
)
from domain.ports import Clock, EventJournal

log = logging.getLogger("turnlog")

GATHER_S = 0.1
"""How long deltas are gathered before they are stored."""


class TurnLog:
    """Writes one turn's events to the journal, each in its place.

    `last_write` is the newest append; appends of one turn are written in order, so when it has landed,
    all have.
    """

    def __init__(self, response_id: str, journal: EventJournal) -> None:
        self._response_id = response_id
        self._journal = journal
        self._gathered: list[ResponseEvent] = []
        self._version = 0
        self._timer: asyncio.TimerHandle | None = None
        self.last_write: Future[None] = Future()

    def keep(self, events: Sequence[ResponseEvent]) -> None:
        """Store `events`: deltas soon, anything else now, together with what was gathered before it."""
        self._gathered += events
        if all(isinstance(event, ItemExtended | ItemOpened) for event in events):
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._write)
        else:
            self._write()

    def _write(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        records = []
        for event in merged(self._gathered):
            self._version += 1
            records.append(Recorded(self._response_id, self._version, event))
        self._gathered.clear()
        self.last_write = self._journal.append(records)


async def follow(turn: LiveTurn, turn_log: TurnLog, clock: Clock) -> None:
    """See the write of an ended turn through, and record how it went.

    The soft limit only warns, the hard one is an event of the turn; a write that lands later still counts
    (R-354, R-356, R-360). A failed write is logged and the client's answer stands (R-361).
    """
    write = asyncio.wrap_future(turn_log.last_write)
    committed = isinstance(turn.response.ended, TurnCommitted)
    began = time.monotonic()

    def elapsed_ms() -> float:
        return round((time.monotonic() - began) * 1000, 3)

    def record(event: TurnPersisted | PersistHardTimedOut) -> None:
        turn.take(event)
        turn_log.keep([event])

    try:
        soft_s = persist_soft_limit_s()
        if not await _settles(write, soft_s):
            log.warning("[responses] the write of %s is slow; it goes on", turn.response.id)
            hard_s = persist_hard_limit_s()
            if committed and hard_s and not await _settles(write, hard_s - soft_s):
                log.error("[responses] the write of %s has not settled in time", turn.response.id)
                record(PersistHardTimedOut(at_ms=clock.now_ms(), after_ms=elapsed_ms()))
        await write
        if committed:
            record(TurnPersisted(at_ms=clock.now_ms(), write_ms=elapsed_ms()))
    except Exception:
        log.exception("[responses] the turn %s could not be stored", turn.response.id)
    finally:
        turn.settled.set()


async def _settles(write: "asyncio.Future[None]", limit_s: float) -> bool:
    done, _ = await asyncio.wait((write,), timeout=max(limit_s, 0))
    return bool(done)

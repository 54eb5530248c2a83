"""When a turn's events are stored, and what becomes of the write that holds its last one (R-351 … R-364).

Deltas are gathered for a moment and merged, so that a stored turn is a few rows; everything else is handed
to the journal at once. Nothing here waits for the store: a write that settles, or that takes too long, calls
back, and no request waits for it (R-083, R-364, D-25).
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from turnlog.app.settings import marker_ttl_ms, persist_hard_limit_s, persist_soft_limit_s
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites
from turnlog.domain.events import (
    ItemExtended,
    ItemOpened,
    PersistHardTimedOut,
    Recorded,
    ResponseCreated,
    ResponseEvent,
    TurnCommitted,
    TurnPersisted,
    merged,
)
from turnlog.domain.lifecycle import Lifecycle
from turnlog.domain.ports import Clock, EventJournal, Retains

log = logging.getLogger("turnlog")

GATHER_S = 0.1
"""How long deltas are gathered before they are stored."""

Written = Callable[[int, BaseException | None], None]
"""Told how many of a turn's events an append held, and why it was refused, if it was."""

PendingAppends = PendingWrites["asyncio.Future[None]"]
"""The tracker of a store; its writes can be waited for on the event loop."""


@dataclass(frozen=True)
class Persistence:
    """What the writes of one store have in common: where they go, and who has to know of them."""

    journal: EventJournal
    pending: PendingAppends
    retains: Retains
    live: LiveTurns
    clock: Clock
    under_way: "dict[asyncio.Future[None], str]" = field(default_factory=dict)

    def begin(
        self, created: ResponseCreated, earliest_expiry_ms: int, written: Written | None = None
    ) -> "TurnLog":
        """The log of a turn that was accepted; its first event is on its way.

        Args:
            earliest_expiry_ms: when the response can be continued no longer (`retention.earliest_expiry`).
            written: told of every append that settles, on the event loop.
        """
        turn_log = TurnLog(created, earliest_expiry_ms, self, written)
        turn_log.keep([created])
        return turn_log

    @property
    def open_ids(self) -> frozenset[str]:
        """The responses that will get more events: they run, or their last write is under way."""
        return self.live.ids.union(self.under_way.values())

    async def until_settled(self) -> None:
        """Wait until every last write that has been started has landed or failed."""
        while self.under_way:
            await asyncio.wait(self.under_way)


class TurnLog:
    """Writes one turn's events to the journal, each in its place.

    Of the turn itself it keeps numbers only, because a wedged write may outlive it (R-352, G-063).
    `last_write` is the newest append; appends of one turn are written in order, so when it has landed,
    all have.
    """

    def __init__(
        self,
        created: ResponseCreated,
        earliest_expiry_ms: int,
        persistence: Persistence,
        written: Written | None,
    ) -> None:
        self.response_id = created.response_id
        self.instance_id = created.instance_id
        self.earliest_expiry_ms = earliest_expiry_ms
        self._persistence = persistence
        self._written = written
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

    def finish(self, turn: LiveTurn, events: Sequence[ResponseEvent]) -> None:
        """Store the last `events` of `turn` and see their write through, without waiting for it."""
        FinalWrite(turn, self, self._persistence).start(events)

    def _write(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        records = []
        for event in merged(self._gathered):
            self._version += 1
            records.append(Recorded(self.response_id, self._version, event))
        count = len(self._gathered)
        self._gathered.clear()
        self.last_write = self._persistence.journal.append(records)
        if written := self._written:
            asyncio.wrap_future(self.last_write).add_done_callback(
                lambda write: written(count, write.exception())
            )


class FinalWrite:
    """The append that holds a turn's last event, from its start until it settles.

    If the turn was committed it is "the write" of the specification, with the model's instance id retained,
    an entry in the tracker and the hard limit's breaker. A failed turn has none of these: nothing continues
    from it, so nobody waits for its write.
    """

    def __init__(self, turn: LiveTurn, turn_log: TurnLog, persistence: Persistence) -> None:
        # Weak, so that a wedged write holds an id and some numbers, not the turn (R-352, G-063).
        self._turn = weakref.ref(turn)
        self._lifecycle = Lifecycle(turn.response.status)
        self._committed = isinstance(turn.response.ended, TurnCommitted)
        self._log = turn_log
        self._persistence = persistence
        self._retained = False
        self._retired = False
        self._timers: list[asyncio.TimerHandle] = []
        self._began_s = asyncio.get_running_loop().time()

    @property
    def _id(self) -> str:
        return self._log.response_id

    def start(self, events: Sequence[ResponseEvent]) -> None:
        """Hand the events to the journal; called in the lane, so that who comes next sees it (R-351)."""
        if self._committed:
            self._persistence.retains.retain(self._log.instance_id)  # before the start
            self._retained = True
        try:
            self._log.keep(events)
        except Exception as error:
            self._end(error)  # undoes the retain; the client's answer stands
            return
        write = asyncio.wrap_future(self._log.last_write)
        if self._committed:
            self._persistence.pending.register(self._id, write, self._log.earliest_expiry_ms)
        self._persistence.under_way[write] = self._id
        write.add_done_callback(self._settled)
        self._call_later(persist_soft_limit_s(), self._passed_soft_limit)
        if hard_s := persist_hard_limit_s():
            self._call_later(hard_s, self._passed_hard_limit)

    def _call_later(self, limit_s: float, callback: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(limit_s, callback))

    def _passed_soft_limit(self) -> None:
        """Say so, and nothing else: a slow write may still land, and needs its instance id then (R-355)."""
        log.warning("[responses] the write of %s is slow; it goes on", self._id)

    def _passed_hard_limit(self) -> None:
        """Take the write for wedged. In this order: marker, retire, release (R-356, R-075)."""
        if self._retained:  # else there is nothing to give up
            log.error("[responses] the write of %s has not settled in time", self._id)
            now_ms = self._persistence.clock.now_ms()
            self._persistence.pending.hard_time_out(self._id, now_ms=now_ms, ttl_ms=marker_ttl_ms())
            self._retired = self._persistence.retains.retire(self._log.instance_id)
            self._release()
            self._record(self._lifecycle.hard_time_out(at_ms=now_ms, after_ms=self._elapsed_ms()))
        self._persistence.live.remove(self._id)

    def _settled(self, write: "asyncio.Future[None]") -> None:
        """The write has landed or failed, in time or late (R-359, R-360)."""
        del self._persistence.under_way[write]
        self._persistence.pending.settle(self._id, write)
        self._end(write.exception())

    def _end(self, error: BaseException | None) -> None:
        """Give back what was taken for the write, and record how it went."""
        for timer in self._timers:
            timer.cancel()
        if self._retired:
            self._persistence.retains.unretire(self._log.instance_id)
        self._release()
        if error:
            log.error("[responses] the turn %s could not be stored", self._id, exc_info=error)
        elif self._committed:
            now_ms = self._persistence.clock.now_ms()
            self._record(self._lifecycle.persist(at_ms=now_ms, write_ms=self._elapsed_ms()))
        if turn := self._turn():
            turn.settled.set()
        self._persistence.live.remove(self._id)

    def _release(self) -> None:
        """Release the retain, once (R-070)."""
        if self._retained:
            self._retained = False
            self._persistence.retains.release(self._log.instance_id)

    def _record(self, event: TurnPersisted | PersistHardTimedOut) -> None:
        """Let `event` happen: to the turn, if anyone still reads it from memory, and to its log."""
        if turn := self._turn():
            turn.response.apply(event)
        self._log.keep([event])

    def _elapsed_ms(self) -> float:
        return round((asyncio.get_running_loop().time() - self._began_s) * 1000, 3)

"""When a turn's events are stored, and how its final write is tracked (R-351 … R-364).

Deltas are gathered briefly and merged, so that a stored turn is a few rows; all other events go to the
journal at once. Nothing here waits for the store: a write that settles or takes too long triggers a callback,
and no request waits for it (R-083, R-364, D-25).
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
from turnlog.domain.ports import Clock, EventJournal, InstancePins

log = logging.getLogger("turnlog")

GATHER_S = 0.1
"""How long deltas are gathered before they are stored."""

Written = Callable[[int, BaseException | None], None]
"""Called with the number of a turn's events in an append, and the error if it was refused."""

PendingAppends = PendingWrites["asyncio.Future[None]"]
"""The tracker of a store; its writes can be waited for on the event loop."""


@dataclass(frozen=True)
class Persistence:
    """The dependencies that all writes of a store share."""

    journal: EventJournal
    pending: PendingAppends
    pins: InstancePins
    live: LiveTurns
    clock: Clock
    under_way: "dict[asyncio.Future[None], str]" = field(default_factory=dict)
    steered: set[str] = field(default_factory=set)

    def begin(
        self,
        created: ResponseCreated,
        earliest_expiry_ms: int,
        written: Written | None = None,
        along: Sequence[Recorded] = (),
    ) -> "TurnLog":
        """The log of an accepted turn; writes its first event.

        Args:
            earliest_expiry_ms: when the response can no longer be continued (`retention.earliest_expiry`).
            written: called for every append that settles, on the event loop.
            along: events of the response that it continues; either all of them are stored or none.
        """
        turn_log = TurnLog(created.response_id, created.instance_id, earliest_expiry_ms, self, written)
        turn_log.keep([created], along)
        return turn_log

    def resume(
        self,
        response_id: str,
        instance_id: int,
        earliest_expiry_ms: int,
        written: Written | None = None,
        *,
        version: int,
    ) -> "TurnLog":
        """The log of a turn of which events up to `version` are stored; the rest as for `begin`.

        Args:
            instance_id: that of the model it runs on, which may not be the one it was accepted for.
        """
        return TurnLog(response_id, instance_id, earliest_expiry_ms, self, written, version=version)

    @property
    def open_ids(self) -> frozenset[str]:
        """The responses that will get more events: they run, are written, or owe input that steers them."""
        return self.live.ids.union(self.under_way.values(), self.steered)

    async def until_settled(self) -> None:
        """Wait until every last write that has been started has landed or failed."""
        while self.under_way:
            await asyncio.wait(self.under_way)


class TurnLog:
    """Writes one turn's events to the journal, in order.

    Of the turn itself it keeps numbers only, because a wedged write may outlive it (R-352, G-063).
    `last_write` is the newest append; appends of one turn are written in order, so when it has landed,
    all have.
    """

    def __init__(
        self,
        response_id: str,
        instance_id: int,
        earliest_expiry_ms: int,
        persistence: Persistence,
        written: Written | None,
        *,
        version: int = 0,
    ) -> None:
        self.response_id = response_id
        self.instance_id = instance_id
        self.earliest_expiry_ms = earliest_expiry_ms
        self._persistence = persistence
        self._written = written
        self._gathered: list[ResponseEvent] = []
        self._version = version
        self._timer: asyncio.TimerHandle | None = None
        self.last_write: Future[None] = Future()

    def keep(self, events: Sequence[ResponseEvent], along: Sequence[Recorded] = ()) -> None:
        """Store `events`: deltas soon, anything else now, together with the deltas gathered before.

        Args:
            along: events of another response, stored with these or not at all.
        """
        self._gathered += events
        if all(isinstance(event, ItemExtended | ItemOpened) for event in events):
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._write)
        else:
            self._write(along)

    def numbered(self, events: Sequence[ResponseEvent]) -> list[Recorded]:
        """The events in the next places of the turn's log, for whoever stores them."""
        records = []
        for event in events:
            self._version += 1
            records.append(Recorded(self.response_id, self._version, event))
        return records

    def finish(self, turn: LiveTurn, events: Sequence[ResponseEvent]) -> None:
        """Store the last `events` of `turn` and see their write through, without waiting for it."""
        FinalWrite(turn, self, self._persistence).start(events)

    def _write(self, along: Sequence[Recorded] = ()) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        records = [*self.numbered(merged(self._gathered)), *along]
        count = len(self._gathered)
        self._gathered.clear()
        self.last_write = self._persistence.journal.append(records)
        if written := self._written:
            asyncio.wrap_future(self.last_write).add_done_callback(
                lambda write: written(count, write.exception())
            )


class FinalWrite:
    """The append that holds a turn's last event, from its start until it settles.

    If the turn was committed it is "the write" of the specification, with the model's instance id pinned,
    an entry in the tracker and a hard limit. A failed turn has none of these: nothing continues from it, so
    nobody waits for its write.
    """

    def __init__(self, turn: LiveTurn, turn_log: TurnLog, persistence: Persistence) -> None:
        # Weak, so that a wedged write holds an id and some numbers, not the turn (R-352, G-063).
        self._turn = weakref.ref(turn)
        self._lifecycle = Lifecycle(turn.response.status)
        self._committed = isinstance(turn.response.ended, TurnCommitted)
        self._log = turn_log
        self._persistence = persistence
        self._pinned = False
        self._retired = False
        self._timers: list[asyncio.TimerHandle] = []
        self._began_s = asyncio.get_running_loop().time()

    @property
    def _id(self) -> str:
        return self._log.response_id

    def start(self, events: Sequence[ResponseEvent]) -> None:
        """Hand the events to the journal; called in the lane, so the next turn sees the write (R-351)."""
        if self._committed:
            self._persistence.pins.pin(self._log.instance_id)  # before the start
            self._pinned = True
        try:
            self._log.keep(events)
        except Exception as error:
            self._end(error)  # releases the pin; the client's answer stands
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
        """Only log: a slow write may still land, and then needs its instance id (R-355)."""
        log.warning("[responses] the write of %s is slow and still in progress", self._id)

    def _passed_hard_limit(self) -> None:
        """Treat the write as wedged. In this order: marker, retire, unpin (R-356, R-075)."""
        if self._pinned:  # else there is nothing to give up
            log.error("[responses] the write of %s has not settled in time", self._id)
            now_ms = self._persistence.clock.now_ms()
            self._persistence.pending.hard_time_out(self._id, now_ms=now_ms, ttl_ms=marker_ttl_ms())
            self._retired = self._persistence.pins.retire(self._log.instance_id)
            self._unpin()
            self._record(self._lifecycle.hard_time_out(at_ms=now_ms, after_ms=self._elapsed_ms()))
        let_go = self._persistence.live.evict if self._committed else self._persistence.live.remove
        let_go(self._id)

    def _settled(self, write: "asyncio.Future[None]") -> None:
        """The write has landed or failed, in time or late (R-359, R-360)."""
        del self._persistence.under_way[write]
        self._persistence.pending.settle(self._id, write)
        self._end(write.exception())

    def _end(self, error: BaseException | None) -> None:
        """Release the write's resources, and record its result."""
        for timer in self._timers:
            timer.cancel()
        if self._retired:
            self._persistence.pins.unretire(self._log.instance_id)
        self._unpin()
        if error:
            log.error("[responses] the turn %s could not be stored", self._id, exc_info=error)
        elif self._committed:
            now_ms = self._persistence.clock.now_ms()
            self._record(self._lifecycle.persist(at_ms=now_ms, write_ms=self._elapsed_ms()))
        if turn := self._turn():
            turn.settled.set()
        self._persistence.live.remove(self._id)

    def _unpin(self) -> None:
        """Release the pin, once (R-070)."""
        if self._pinned:
            self._pinned = False
            self._persistence.pins.unpin(self._log.instance_id)

    def _record(self, event: TurnPersisted | PersistHardTimedOut) -> None:
        """Apply `event` to the turn, if it is still in memory, and add it to its log."""
        if turn := self._turn():
            turn.response.apply(event)
        self._log.keep([event])

    def _elapsed_ms(self) -> float:
        return round((asyncio.get_running_loop().time() - self._began_s) * 1000, 3)

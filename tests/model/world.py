"""Servers that come and go, the disk that outlives them, and what is known of every turn."""

import math
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Any, TypeVar

from tests.domain.stories import NumberedIds
from tests.model.answers import Moment, stored_alone, stored_chain
from tests.model.known import KnownTurn
from tests.model.server import Server
from tests.model.store import Disk, Fault, Reads
from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import ResponsesError

_Result = TypeVar("_Result")


class Meanwhile(Enum):
    """What becomes of the writes under way while a request is being answered."""

    NOTHING = auto()
    LANDING_DURING_THE_LOOK_UP = auto()
    FAILING_DURING_THE_LOOK_UP = auto()
    LANDING_DURING_THE_WAIT = auto()
    FAILING_DURING_THE_WAIT = auto()


_DURING_THE_LOOK_UP = (Meanwhile.LANDING_DURING_THE_LOOK_UP, Meanwhile.FAILING_DURING_THE_LOOK_UP)
_DURING_THE_WAIT = (Meanwhile.LANDING_DURING_THE_WAIT, Meanwhile.FAILING_DURING_THE_WAIT)
_FAILING = (Meanwhile.FAILING_DURING_THE_LOOK_UP, Meanwhile.FAILING_DURING_THE_WAIT)


class CrashedError(Exception):
    """The process died before it answered."""


class World:
    """Everything there is. `process` numbers the server that runs now, `known` are the turns by id."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.known: dict[str, KnownTurn] = {}
        self.process = 0
        self._ids = NumberedIds()
        self.server = Server(self.disk, self._ids, 0.0)
        self.server.start()
        self.server.sweep()

    @property
    def now_ms(self) -> int:
        """The wall clock's time."""
        return self.server.clock.now_ms()

    @property
    def mine(self) -> list[KnownTurn]:
        """The turns of the process that runs now."""
        return [known for known in self.known.values() if known.process == self.process]

    @property
    def unended(self) -> list[str]:
        """The ids of those that have not ended."""
        return [known.id for known in self.mine if known.ended is None]

    @property
    def in_motion(self) -> bool:
        """Whether it makes a difference when the server stops."""
        return bool(self.unended) or self.server.journal.stuck

    @property
    def unsettled(self) -> list[KnownTurn]:
        """Those whose last write has begun and not settled."""
        return [known for known in self.mine if self.server.journal.holds_end_of(known.id)]

    def moment(self, response_id: str) -> Moment:
        """What is so about a response now."""
        known = self.known.get(response_id)
        unsettled = self.server.journal.holds_end_of(response_id)
        awaited = known if known and known.committed and unsettled else None
        return Moment(
            alone=stored_alone(self.disk, response_id, self.now_ms),
            chained=stored_chain(self.disk, response_id, self.now_ms),
            unsettled=unsettled,
            in_flight=awaited is not None and not awaited.wedged,
            marked=awaited is not None and awaited.wedged and awaited.remembered(self.now_ms),
            useless=known is not None and known.earliest_expiry_ms <= self.now_ms,
            told=known if response_id in self.server.live.ids else None,
        )

    def accept(self, turn: LiveTurn, previous: str | None) -> None:
        """A turn was begun; from now on a client follows it."""
        created = turn.response.created
        limit_ms = self.known[previous].limit_ms if previous else math.inf
        if created.retention_s is not None:
            limit_ms = min(limit_ms, created.expires_at * 1000)
        known = KnownTurn(created, limit_ms, self.process, turn)
        self.known[known.id] = known
        self.server.ask(known.follow(turn.frames.read()))

    @contextmanager
    def facing(self, faults: Sequence[Fault]) -> Iterator[Server]:
        """Let the appends made inside meet `faults`, one each; if the process dies, another begins."""
        server = self.server
        server.journal.faults = deque(faults)
        with suppress(CrashedError):
            yield server
        server.loop.run_for()
        self.observe()
        left, server.journal.faults = server.journal.faults, deque()
        if server.journal.crashed:
            self.restart(left)

    def answer(
        self, request: Coroutine[Any, Any, _Result], reads: Reads, meanwhile: Meanwhile
    ) -> tuple[str | None, _Result | None]:
        """The code of the error that a request is answered with, or None and its result.

        It waits for a write under way as long as it may (R-117); by then it must be answered.
        """
        server = self.server

        def settle() -> None:
            self.observe()
            server.journal.settle([Fault.FULL] if meanwhile in _FAILING else [])

        server.reader.go(reads, settle if meanwhile in _DURING_THE_LOOK_UP else None)
        task = server.ask(request)
        if not task.done():
            server.loop.run_for(chain_write_wait_s() / 2)
            if meanwhile in _DURING_THE_WAIT:
                settle()
            server.loop.run_for(chain_write_wait_s() / 2)
        server.reader.go(Reads.WORK, None)
        self.observe()
        if server.journal.crashed:
            raise CrashedError
        assert task.done(), "a request waits longer than it may"
        try:
            return None, task.result()
        except ResponsesError as error:
            return error.code, None

    def observe(self) -> None:
        """Take note of how turns have ended, and of writes that are past the hard limit."""
        for known in self.mine:
            if known.watched and known.watched.response.ended:
                known.ended = known.watched.response.ended
                known.watched = None  # it is for the server to keep it
        for known in self.unsettled:
            known.wedged = known.wedged or known.past_hard_limit(self.now_ms)

    def restart(self, faults: Sequence[Fault] = ()) -> None:
        """The process is gone. Others begin, one after the other, until one gets through its recovery."""
        self.observe()
        for known in self.mine:
            known.own_versions = len(self.disk.streams.get(known.id, ()))
        left = deque(faults)
        while True:
            now_s = self.server.now_s
            self.server.die()
            self.process += 1
            self.server = Server(self.disk, self._ids, now_s)
            self.server.journal.faults, healthy = left, not left
            recovery = self.server.start()
            while self.server.journal.stuck:  # nothing but silence helps here
                self.server.journal.settle()
                self.server.loop.run_for()
            if recovery.done() and recovery.exception() is None:
                break
            assert not healthy, "the recovery fails though the store does not"
        self.server.journal.faults = deque()
        self.server.sweep()

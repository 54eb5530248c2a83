"""Given, when, then for the look-up of a chain: a reader that finds what it is told, writes that wait."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

from tests.domain.stories import COMMITTED, CREATED, STARTED
from tests.fakes.clock import StoppedClock
from turnlog.app.http.errors import refuse
from turnlog.app.turns.chains import Chains
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites
from turnlog.app.turns.persistence import PendingAppends
from turnlog.app.turns.retrieval import Log, Retrieval
from turnlog.domain.errors import ResponsesError, StorageError
from turnlog.domain.events import Recorded, ResponseEvent
from turnlog.domain.owners import LOCAL_OWNER

ID = "resp_1"
HOUR_MS = 3_600_000
Groups = list[list[Recorded]]


def recorded(*events: ResponseEvent) -> Groups:
    """One stored response."""
    return [[Recorded(ID, version, event) for version, event in enumerate(events, start=1)]]


ROWS = recorded(CREATED, STARTED, COMMITTED)
NOTHING: Groups = []
BROKEN = StorageError("the disk is on fire")


class Write(asyncio.Future[None]):
    """A write under way; `waited_for` is set once somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = asyncio.Event()

    def add_done_callback(self, *args: Any, **options: Any) -> None:
        """Somebody waits."""
        super().add_done_callback(*args, **options)
        self.waited_for.set()


class FakeReader:
    """A reader that finds, look-up by look-up, what it is told to find.

    `meanwhile` is called with the number of each look-up while it is under way.
    """

    def __init__(self, finds: Sequence[Groups | Exception]) -> None:
        self._finds = finds
        self.look_ups = 0
        self.kept: dict[str, tuple[list[Recorded], int]] = {}
        self.kept_error: Exception | None = None
        self.meanwhile: Callable[[int], None] = lambda number: None

    def dated(self, response_id: str, *, owner: str | None = None) -> Future[tuple[list[Recorded], int]]:
        """What is stored of the owner's response, and when it expires."""
        answer: Future[tuple[list[Recorded], int]] = Future()
        if self.kept_error:
            answer.set_exception(self.kept_error)
        else:
            answer.set_result(self.kept.get(response_id, ([], 0)) if owner == LOCAL_OWNER else ([], 0))
        return answer

    def chain(
        self, response_id: str, *, limit: int, now_s: int = 0, owner: str | None = None
    ) -> Future[Groups]:
        """The next of its answers, if it is the owner's."""
        assert response_id == ID
        found = self._finds[self.look_ups]
        self.look_ups += 1
        self.meanwhile(self.look_ups)
        answer: Future[Groups] = Future()
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found if owner == CREATED.owner else NOTHING)
        return answer


class Given:
    """A store that finds these at one look-up after the other, and what is known of pending writes."""

    def __init__(self, *finds: Groups | Exception) -> None:
        self.reader = FakeReader(finds)
        self.pending: PendingAppends = PendingWrites(lambda _: LOCAL_OWNER)
        self.clock = StoppedClock()
        self.live = LiveTurns()
        self.retrieval = Retrieval(cast(Log, self.reader), self.live, self.pending, self.clock)
        self.chains = Chains(self.retrieval, self.pending, self.clock, max_length=10)

    def write(self, expiry_ms: float | None = None) -> Write:
        """A write of the response that is in flight."""
        write = Write()
        self.pending.register(ID, write, expiry_ms)
        return write

    def marker(self, ttl_ms: float = HOUR_MS, expiry_ms: float | None = None) -> Write:
        """A write of the response that is past its hard limit."""
        write = self.write(expiry_ms)
        self.pass_hard_limit(ttl_ms)
        return write

    def pass_hard_limit(self, ttl_ms: float = HOUR_MS) -> None:
        """The breaker fires."""
        assert self.pending.hard_time_out(ID, now_ms=self.clock.ms, ttl_ms=ttl_ms)

    def settle(self, write: Write, error: Exception | None = None) -> None:
        """The write lands, or fails."""
        self.pending.settle(ID, write)
        if error is None:
            write.set_result(None)
        else:
            write.set_exception(error)
            write.exception()  # the follower of the write has seen it

    async def answer(self, owner: str = LOCAL_OWNER) -> int:
        """The HTTP status that a continuation by this owner gets; 200 if the chain was found."""
        try:
            chain = await self.chains.resolve(ID, owner)
        except ResponsesError as error:
            return int(refuse(cast(Any, None), error).status_code or 0)
        assert [response.id for response in chain] == [ID]
        return 200

    async def answer_when_waiting(self, write: Write, then: Callable[[], None]) -> int:
        """The same; `then` is done once the continuation waits for the write."""
        answer = asyncio.create_task(self.answer())
        await write.waited_for.wait()
        then()
        return await answer

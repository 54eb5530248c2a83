"""Who finds which responses in a real store, and what those are told who find none."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    STARTED,
    Store,
    created,
    opened,
    recorded,
    turn,
)
from tests.fakes.clock import StoppedClock
from turnlog.adapters.openai.frames import Framer
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites
from turnlog.app.turns.persistence import PendingAppends
from turnlog.app.turns.retrieval import Retrieval
from turnlog.domain.errors import (
    ContentExpiredError,
    ForbiddenError,
    NotEndedError,
    ResponseNotFoundError,
    StorageTimeoutError,
)
from turnlog.domain.events import Recorded, TurnCommitted, TurnFailed
from turnlog.domain.owners import LOCAL, Caller, Role
from turnlog.domain.response import fold

AUDITOR = Caller("anna", frozenset({Role.AUDITOR, Role.OPERATOR}))
OPERATOR = Caller("olga", frozenset({Role.OPERATOR}))
OWNER = created("resp_a").owner
EXPIRY_S = created("resp_a").expires_at


class Given:
    """A store, and what is known in memory, a second before its responses expire."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.live = LiveTurns()
        self.pending: PendingAppends = PendingWrites()
        self.clock = StoppedClock()
        self.clock.ms = EXPIRY_S * 1000 - 1000
        self.retrieval = Retrieval(store.reader, self.live, self.pending, self.clock)

    def stored(self, *stories: list[Recorded]) -> None:
        """These are in the log."""
        for story in stories:
            self.store.journal.append(story).result()

    def runs(self) -> LiveTurn:
        """A turn that has started and is not stored yet."""
        running = LiveTurn(fold([created("resp_a"), STARTED]), Framer())
        self.live.add(running)
        return running


@pytest.fixture
def given(tmp_path: Path) -> Iterator[Given]:
    with opened(tmp_path / "turnlog.db") as store:
        yield Given(store)


def replaying(
    response_id: str, replay_of: str | None, end: TurnCommitted | TurnFailed = COMMITTED
) -> list[Recorded]:
    return recorded(response_id, replace(created(response_id), replay_of=replay_of), STARTED, end)


async def test_an_operator_replays_what_it_may_read(given: Given) -> None:
    """D-18: failed turns and their replays, also replays of replays, in a circle or of what is gone."""
    given.stored(
        turn("resp_a"),
        replaying("resp_b", None, FAILED),
        replaying("resp_c", "resp_b"),
        replaying("resp_d", "resp_c"),
        replaying("resp_e", "resp_a"),
        replaying("resp_f", "resp_gone"),
        replaying("resp_g", "resp_h"),
        replaying("resp_h", "resp_g"),
    )

    for name in "abcdefgh":
        response_id = f"resp_{name}"
        row, _ = await given.retrieval.stored(response_id)
        assert await given.retrieval.reads_content(OPERATOR, row) == (name in "bcd")
        assert (await given.retrieval.original(response_id, AUDITOR)).response.id == response_id
        if name in "bcd":
            assert (await given.retrieval.original(response_id, OPERATOR)).response.id == response_id
        else:
            with pytest.raises(ForbiddenError):
                await given.retrieval.original(response_id, OPERATOR)


async def test_what_is_not_there_has_no_original(given: Given) -> None:
    with pytest.raises(ResponseNotFoundError):
        await given.retrieval.original("resp_a", LOCAL)


async def test_an_original_is_over(given: Given) -> None:
    """Whether it runs, or its end could not be stored."""
    given.runs()
    with pytest.raises(NotEndedError):
        await given.retrieval.original("resp_a", LOCAL)

    given.live.remove("resp_a")
    given.stored(recorded("resp_a", created("resp_a"), STARTED))
    with pytest.raises(NotEndedError):
        await given.retrieval.original("resp_a", LOCAL)


async def test_an_original_is_waited_for_until_it_is_stored(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS", "1")
    ended = given.runs()
    ended.response.apply(COMMITTED)

    with pytest.raises(StorageTimeoutError):
        await given.retrieval.original("resp_a", LOCAL)

    given.stored(turn("resp_a"))
    ended.settled.set()
    assert (await given.retrieval.original("resp_a", LOCAL)).response.ended == COMMITTED


@pytest.mark.parametrize("wedged", [False, True])
async def test_a_turn_whose_end_is_still_being_written_is_come_again_for(
    given: Given, *, wedged: bool
) -> None:
    """R-121: whether it is read or replayed, and by whom; it is not unknown, and not under way any more."""
    given.stored(recorded("resp_a", created("resp_a"), STARTED))
    given.pending.register("resp_a", asyncio.Future(), None)
    if wedged:
        given.pending.hard_time_out("resp_a", now_ms=given.clock.ms, ttl_ms=60_000)

    for asked in (
        given.retrieval.story("resp_a", OWNER),
        given.retrieval.response("resp_a", OWNER),
        given.retrieval.original("resp_a", LOCAL),
    ):
        with pytest.raises(StorageTimeoutError):
            await asked


async def test_what_has_expired_is_gone_for_its_owner_and_for_replays(given: Given) -> None:
    """R-111, D-14: from the moment on, swept or not; auditors read on what is left."""
    given.stored(turn("resp_a"))
    assert await given.retrieval.chain("resp_a", OWNER, limit=1)
    given.clock.ms += 1000

    for swept in (False, True):
        for asked in (given.retrieval.response, given.retrieval.events):
            with pytest.raises(ResponseNotFoundError):
                await asked("resp_a", OWNER)
        assert await given.retrieval.chain("resp_a", OWNER, limit=1) == []
        assert await given.retrieval.items({"msg_a"}, OWNER) == {}
        with pytest.raises(ContentExpiredError):
            await given.retrieval.original("resp_a", LOCAL)
        row, _ = await given.retrieval.stored("resp_a")
        assert row.expired == swept
        while given.store.journal.expire(EXPIRY_S + 1).result():
            pass


@pytest.mark.parametrize(("early_ms", "found"), [(1, True), (0, False)])
async def test_a_response_is_gone_in_the_second_in_which_it_expires(
    given: Given, early_ms: int, *, found: bool
) -> None:
    """R-111."""
    given.stored(turn("resp_a"))
    given.clock.ms = EXPIRY_S * 1000 - early_ms

    if found:
        assert await given.retrieval.response("resp_a", OWNER)
    else:
        with pytest.raises(ResponseNotFoundError):
            await given.retrieval.response("resp_a", OWNER)

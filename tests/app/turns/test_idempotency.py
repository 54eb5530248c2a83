"""One turn for an idempotency key, with real turns and a real store (T2-26)."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.stories import COMMITTED, FAILED, STARTED, Store, created, opened, recorded
from tests.app.services import asked, running
from tests.app.turns.writes import LimitsMs
from tests.fakes.clock import StoppedClock
from tests.fakes.journal import HeldJournal, RefusingJournal
from turnlog.app.http.service import Service
from turnlog.app.turns.idempotency import IdempotencyKeys
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites
from turnlog.app.turns.retrieval import Retrieval, Story
from turnlog.domain.errors import IdempotencyKeyReusedError, ModelNotFoundError, StorageTimeoutError
from turnlog.domain.events import (
    IDEMPOTENCY_KEY,
    PersistHardTimedOut,
    Recorded,
    ResponseCreated,
    TurnCommitted,
    TurnFailed,
)
from turnlog.domain.idempotency import KEY_LIFE_MS
from turnlog.domain.owners import LOCAL_OWNER
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import api_status


def keyed(text: str, key: str = "k") -> TurnRequest:
    """A request under a key; its text stands for its body."""
    return asked(text, retry_keys={IDEMPOTENCY_KEY: key}, body_sha256=text)


async def ask(service: Service, request: TurnRequest, owner: str = LOCAL_OWNER) -> LiveTurn | Story:
    """What answers the request: the turn that it repeats, or a new one."""
    async with service.idempotency_keys.repeated(request, owner) as earlier:
        return earlier or await service.turns.begin(request, owner)


async def begun(service: Service, request: TurnRequest) -> LiveTurn:
    """A turn that the request begins or joins."""
    turn = await ask(service, request)
    assert isinstance(turn, LiveTurn)
    return turn


async def test_requests_that_come_at_the_same_moment_are_one_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        turns = await asyncio.gather(*(ask(service, keyed("hang")) for _ in range(20)))

        assert len({turn.response.id for turn in turns}) == 1


async def test_keys_and_owners_do_not_meet(tmp_path: Path) -> None:
    """D-18."""
    async with running(tmp_path) as service:
        turns = [
            await ask(service, keyed("hang")),
            await ask(service, keyed("hang", "other")),
            await ask(service, keyed("hang"), owner="bob"),
            await service.turns.begin(asked("hang")),
            await service.turns.begin(asked("hang")),
        ]

        assert len({turn.response.id for turn in turns}) == len(turns)


async def test_a_refusal_takes_no_key(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        unknown = replace(keyed("hi"), model="none", body_sha256="another")
        refusals = await asyncio.gather(*(ask(service, unknown) for _ in range(3)), return_exceptions=True)

        turn = await begun(service, keyed("hi"))

        assert [type(refusal) for refusal in refusals] == [ModelNotFoundError] * 3
        await turn.ended.wait()
        assert api_status(turn.response) == "completed"


@pytest.mark.parametrize("stored", [False, True])
async def test_another_body_is_refused_while_the_turn_runs_and_afterwards(
    tmp_path: Path, *, stored: bool
) -> None:
    async with running(tmp_path) as service:
        turn = await begun(service, keyed("hi"))
        if stored:
            await turn.settled.wait()

        with pytest.raises(IdempotencyKeyReusedError, match=turn.response.id):
            await ask(service, keyed("ho"))


async def test_a_turn_that_failed_frees_its_key_for_any_body(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        first = await begun(service, keyed("boom"))
        await first.ended.wait()
        at_once = await begun(service, keyed("boom"))
        await at_once.settled.wait()
        later = await begun(service, keyed("hi"))
        await later.settled.wait()

        again = await ask(service, keyed("hi"))

        assert len({turn.response.id for turn in (first, at_once, later)}) == 3
        assert (type(again), again.response.id) == (Story, later.response.id)


async def test_a_turn_that_is_being_stopped_is_waited_for_because_it_may_end_well(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        first = await begun(service, keyed("hang"))
        first.abort("client_abort")

        second = await begun(service, keyed("hang"))

        assert isinstance(first.response.ended, TurnFailed)
        assert second.response.id != first.response.id


async def test_a_wedged_write_keeps_its_key_until_it_lands(tmp_path: Path, limits_ms: LimitsMs) -> None:
    """R-121, R-360: nothing of the turn is stored yet, and all of it may still be."""
    limits_ms("60000", "1")
    held = HeldJournal(holds=ResponseCreated)
    async with running(tmp_path, wrap=held) as service:
        turn = await begun(service, keyed("hi"))
        await held.until(PersistHardTimedOut)
        with pytest.raises(StorageTimeoutError):
            await ask(service, keyed("hi"))

        held.land()
        await turn.settled.wait()

        again = await ask(service, keyed("hi"))
        assert (type(again), again.response.id) == (Story, turn.response.id)


async def test_an_answer_that_could_not_be_stored_frees_its_key(tmp_path: Path) -> None:
    """R-361: of the two only the second can be found to have ended well."""
    async with running(tmp_path, wrap=RefusingJournal(first=TurnCommitted)) as service:
        first = await begun(service, keyed("hi"))
        await first.settled.wait()

        second = await begun(service, keyed("hi"))

        assert second.response.id != first.response.id


# ── what is stored ────────────────────────────────────────────────────────────────────────────────

REQUEST = keyed("hi")
CREATED = replace(created("resp_a"), retry_keys=REQUEST.retry_keys, body_sha256=REQUEST.body_sha256)
EXPIRES_MS = CREATED.expires_at * 1000


async def found(store: Store, *stories: list[Recorded], now_ms: int = CREATED.at_ms) -> str | None:
    """The response that answers the request when the log has these stories, at that time."""
    for story in stories:
        store.journal.append(story).result()
    live, clock = LiveTurns(), StoppedClock(now_ms)
    retrieval = Retrieval(store.reader, live, PendingWrites(), clock)
    async with IdempotencyKeys(retrieval, live, clock).repeated(REQUEST, CREATED.owner) as earlier:
        return earlier.response.id if earlier else None


def story(response_id: str, end: TurnCommitted | TurnFailed | None, **changes: object) -> list[Recorded]:
    events = (replace(CREATED, response_id=response_id, **changes), STARTED, *([end] if end else ()))
    return recorded(response_id, *events)


@pytest.mark.parametrize(
    ("stories", "expected"),
    [
        ([], None),
        ([story("resp_a", COMMITTED)], "resp_a"),
        ([story("resp_a", FAILED)], None),
        ([story("resp_a", FAILED), story("resp_b", COMMITTED)], "resp_b"),
        ([story("resp_a", None)], None),
        ([story("resp_a", None), story("resp_b", COMMITTED, at_ms=1001)], "resp_b"),
        ([story("resp_a", COMMITTED, retry_keys={})], None),
        ([story("resp_a", COMMITTED, owner="bob")], None),
    ],
)
async def test_the_turn_under_the_key_that_ended_well_is_found(
    stories: list[list[Recorded]], expected: str | None
) -> None:
    with opened(None) as store:
        assert await found(store, *stories) == expected


@pytest.mark.parametrize(("age_ms", "expected"), [(KEY_LIFE_MS, "resp_a"), (KEY_LIFE_MS + 1, None)])
async def test_a_key_stands_for_a_day(age_ms: int, expected: str | None) -> None:
    kept = story("resp_a", COMMITTED, expires_at=CREATED.at_ms + 10 * KEY_LIFE_MS)
    with opened(None) as store:
        assert await found(store, kept, now_ms=CREATED.at_ms + age_ms) == expected


@pytest.mark.parametrize(("now_ms", "expected"), [(EXPIRES_MS - 1, "resp_a"), (EXPIRES_MS, None)])
async def test_a_key_is_free_when_its_response_has_expired(now_ms: int, expected: str | None) -> None:
    """D-14: swept or not."""
    with opened(None) as store:
        assert await found(store, story("resp_a", COMMITTED), now_ms=now_ms) == expected
        while store.journal.expire(now_ms // 1000).result():
            pass
        assert await found(store, now_ms=now_ms) == expected

"""The look-up of a chain while writes are pending: one test for each line of R-124."""

import logging
from collections.abc import Callable
from itertools import product
from typing import cast

import pytest
from msgspec.structs import replace

from tests.app.turns.lookups import BROKEN, ID, NOTHING, ROWS, Given, Groups, recorded
from tests.domain.stories import CREATED, FAILED, NOON_MS, STARTED
from turnlog.adapters.openai.frames import Framer
from turnlog.app.turns.chains import TABLE, Wait
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import (
    ChainReadError,
    ChainTooLongError,
    NotFoundError,
    PreviousResponseExpiredError,
    PreviousResponseNotCompletedError,
    PreviousResponseNotFoundError,
    ResponseNotFoundError,
    StorageError,
    StorageTimeoutError,
)
from turnlog.domain.events import Recorded, ResponseEvent
from turnlog.domain.response import Response, fold

NOON_S = NOON_MS // 1000


@pytest.fixture(
    params=[
        pytest.param(NOTHING, id="empty"),
        pytest.param(ResponseNotFoundError(ID), id="exception"),
        pytest.param(recorded(CREATED, STARTED), id="no end stored"),
    ]
)
def miss(request: pytest.FixtureRequest) -> Groups | Exception:
    """What counts as a miss: R-113, G-044, G-045; a stream whose end is not stored (D-13)."""
    return cast("Groups | Exception", request.param)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Continuations that wait a millisecond."""
    monkeypatch.setenv("MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS", "1")


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was warned of (R-398)."""

    def told() -> list[str]:
        for record in caplog.records:
            assert record.levelno == logging.WARNING
            assert record.message.startswith("[responses] the write of resp_1 ")
        return [record.message.removeprefix("[responses] the write of resp_1 ") for record in caplog.records]

    return told


Warnings = Callable[[], list[str]]


# ── the first look-up ─────────────────────────────────────────────────────────────────────────────


async def test_rows_at_once_go_on(warnings: Warnings) -> None:
    """R-116: whatever the tracker knows."""
    given = Given(ROWS)
    given.write()

    assert await given.answer() == 200
    assert given.reader.look_ups == 1
    assert warnings() == []


async def test_without_a_previous_response_nothing_is_looked_up() -> None:
    """R-115."""
    given = Given()

    assert await given.chains.resolve(None) == ()
    assert given.reader.look_ups == 0


# ── the lines of R-124, in order ──────────────────────────────────────────────────────────────────


async def test_settled_in_time_then_rows(miss: Groups | Exception, warnings: Warnings) -> None:
    """R-124 line 1, R-117, R-118, G-043, G-044, G-045: continue."""
    given = Given(miss, ROWS)
    write = given.write()

    assert await given.answer_when_waiting(write, lambda: given.settle(write)) == 200
    assert given.reader.look_ups == 2
    assert warnings() == []


@pytest.mark.parametrize("outcome", [None, StorageError("the disk is full")], ids=["landed", "failed"])
async def test_settled_in_time_then_a_miss_without_marker(
    miss: Groups | Exception, outcome: Exception | None, warnings: Warnings
) -> None:
    """R-124 line 2, R-118, G-048: 404; a write that failed is not this request's error."""
    given = Given(miss, miss)
    write = given.write()

    assert await given.answer_when_waiting(write, lambda: given.settle(write, outcome)) == 404
    assert given.reader.look_ups == 2
    assert warnings() == []


@pytest.mark.parametrize(
    ("probe", "status", "warning"),
    [
        pytest.param(ROWS, 200, "was past its hard limit and has landed", id="line 3: rows, continue"),
        pytest.param(NOTHING, 503, "is past its hard limit; the client may retry", id="line 4: miss, 503"),
    ],
)
async def test_settled_in_time_then_a_miss_with_a_marker(
    miss: Groups | Exception, probe: Groups, status: int, warning: str, warnings: Warnings
) -> None:
    """R-124 lines 3 and 4, R-121: another write of the same id is wedged meanwhile."""
    given = Given(miss, miss, probe)
    write = given.write()

    def wedge_another(number: int) -> None:
        if number == 2:
            given.marker()

    given.reader.meanwhile = wedge_another

    assert await given.answer_when_waiting(write, lambda: given.settle(write)) == status
    assert given.reader.look_ups == 3
    assert warnings() == [warning]


@pytest.mark.usefixtures("impatient")
async def test_timed_out_then_rows(miss: Groups | Exception, warnings: Warnings) -> None:
    """R-124 line 5, R-119, G-047: continue, warn; exactly two look-ups."""
    given = Given(miss, ROWS)
    given.write()

    assert await given.answer() == 200
    assert given.reader.look_ups == 2
    assert warnings() == ["is slow; the last look-up found it"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("expiry_ms", [NOON_MS, NOON_MS - 1])
async def test_timed_out_then_a_miss_of_what_has_expired(
    miss: Groups | Exception, expiry_ms: int, warnings: Warnings
) -> None:
    """R-124 line 6, R-120, G-049, G-054: 404, warn."""
    given = Given(miss, miss)
    given.write(expiry_ms)

    assert await given.answer() == 404
    assert given.reader.look_ups == 2
    assert warnings() == ["did not settle in time, and it has expired by now"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("expiry_ms", [NOON_MS + 1, None], ids=["not expired", "unknown"])
async def test_timed_out_then_a_miss(
    miss: Groups | Exception, expiry_ms: int | None, warnings: Warnings
) -> None:
    """R-124 line 7, R-120, G-046: 503, warn."""
    given = Given(miss, miss)
    given.write(expiry_ms)

    assert await given.answer() == 503
    assert given.reader.look_ups == 2
    assert warnings() == ["did not settle in time; the client may retry"]


async def test_a_marker_then_rows(miss: Groups | Exception, warnings: Warnings) -> None:
    """R-124 line 8, R-121, G-051: continue, warn."""
    given = Given(miss, ROWS)
    given.marker()

    assert await given.answer() == 200
    assert given.reader.look_ups == 2
    assert warnings() == ["was past its hard limit and has landed"]


async def test_a_marker_then_a_miss(miss: Groups | Exception, warnings: Warnings) -> None:
    """R-124 line 9, R-121, G-050: 503, warn."""
    given = Given(miss, miss)
    given.marker()

    assert await given.answer() == 503
    assert given.reader.look_ups == 2
    assert warnings() == ["is past its hard limit; the client may retry"]


async def test_no_write_and_no_marker(miss: Groups | Exception, warnings: Warnings) -> None:
    """R-124 line 10, R-122: 404."""
    given = Given(miss)

    assert await given.answer() == 404
    assert given.reader.look_ups == 1
    assert warnings() == []


async def test_an_error_of_the_first_look_up() -> None:
    """R-124 line 11, R-123, G-062: 500, and no second look-up."""
    given = Given(BROKEN)
    given.write()

    assert await given.answer() == 500
    assert given.reader.look_ups == 1


async def test_an_error_after_a_settled_wait() -> None:
    """R-124 line 11, R-123, G-062: 500."""
    given = Given(NOTHING, BROKEN)
    write = given.write()

    assert await given.answer_when_waiting(write, lambda: given.settle(write)) == 500


@pytest.mark.usefixtures("impatient")
async def test_an_error_of_the_last_probe() -> None:
    """R-124 line 11, R-123, G-062: 500."""
    given = Given(NOTHING, BROKEN)
    given.write()

    assert await given.answer() == 500


async def test_an_error_of_the_look_up_for_a_marker() -> None:
    """R-124 line 11, R-123, G-062: 500."""
    given = Given(NOTHING, BROKEN)
    given.marker()

    assert await given.answer() == 500


def test_the_table_has_one_line_for_whatever_is_found_out() -> None:
    """R-124."""
    yes_or_no = (True, False)
    for wait, found, marked, expired in product(Wait, yes_or_no, yes_or_no, yes_or_no):
        # Without write and marker nothing is looked up again; after the last probe no marker is asked for.
        if (wait is Wait.NO_WRITE and found and not marked) or (wait is Wait.TIMED_OUT and marked):
            continue
        assert sum(row.meets(wait, found, marked, expired) for row in TABLE) == 1


# ── what the answers say ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cause", [BROKEN, RuntimeError("the disk is on fire")], ids=["known", "unknown"])
async def test_an_error_names_its_cause(cause: Exception) -> None:
    """R-123: whatever was raised."""
    with pytest.raises(
        ChainReadError, match="previous response 'resp_1' failed: the disk is on fire"
    ) as told:
        await Given(cause).chains.resolve(ID)

    assert told.value.code == "storage_error"


async def test_a_client_that_may_retry_is_told_by_which_id() -> None:
    """R-120."""
    given = Given(NOTHING, NOTHING)
    given.marker()

    with pytest.raises(StorageTimeoutError, match=r"'resp_1'.*Retry with the same id") as told:
        await given.chains.resolve(ID)

    assert told.value.code == "storage_timeout"


async def test_a_missing_response_is_named() -> None:
    """R-122."""
    with pytest.raises(PreviousResponseNotFoundError, match="'resp_1' was not found or has expired"):
        await Given(NOTHING).chains.resolve(ID)


async def test_a_chain_that_is_too_long_is_not_missing() -> None:
    """R-112, D-31: nobody waits for it."""
    given = Given(ROWS * 11)
    given.write()

    with pytest.raises(ChainTooLongError):
        await given.chains.resolve(ID)

    assert given.reader.look_ups == 1


async def test_a_stored_failure_is_not_missing() -> None:
    """D-12."""
    given = Given(recorded(CREATED, STARTED, FAILED))
    given.write()

    with pytest.raises(PreviousResponseNotCompletedError):
        await given.chains.resolve(ID)

    assert given.reader.look_ups == 1


# ── a turn in memory ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("events", [(), (STARTED,), (STARTED, FAILED)], ids=["queued", "running", "failed"])
async def test_a_turn_that_has_not_ended_well_is_not_looked_up(events: tuple[ResponseEvent, ...]) -> None:
    """D-12: 400."""
    given = Given()
    given.live.add(LiveTurn(fold([CREATED, *events]), Framer()))

    assert await given.answer() == 400
    assert given.reader.look_ups == 0


async def test_a_running_turn_that_is_not_stored_is_missing() -> None:
    """D-30, R-409, G-076."""
    given = Given(NOTHING)
    given.live.add(LiveTurn(Response(replace(CREATED, store=False)), Framer()))

    assert await given.answer() == 404


# ── races ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_write_that_lands_while_the_first_look_up_runs_is_found() -> None:
    """R-118: the look-up began before it landed, so its miss says nothing."""
    given = Given(NOTHING, ROWS)
    write = given.write()
    given.reader.meanwhile = lambda number: given.settle(write) if number == 1 else None

    assert await given.answer() == 200


async def test_a_wedged_write_that_lands_while_the_first_look_up_runs_is_found() -> None:
    """R-121, R-133."""
    given = Given(NOTHING, ROWS)
    write = given.marker()
    given.reader.meanwhile = lambda number: given.settle(write) if number == 1 else None

    assert await given.answer() == 200


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("later_ms", "status"), [(0, 503), (100, 404)])
async def test_the_hard_limit_passes_while_a_continuation_waits(later_ms: int, status: int) -> None:
    """R-135, G-060: the earliest expiry is still known, from the marker."""
    given = Given(NOTHING, NOTHING)
    write = given.write(NOON_MS + 100)

    def pass_hard_limit() -> None:
        given.pass_hard_limit()
        given.clock.ms += later_ms

    assert await given.answer_when_waiting(write, pass_hard_limit) == status


@pytest.mark.usefixtures("impatient")
async def test_a_marker_that_is_dead_on_arrival_is_404_for_who_waits_and_for_who_comes() -> None:
    """R-131, R-135, G-053, G-061: no 503 that becomes a 404."""
    given = Given(*[NOTHING] * 3)
    write = given.write()

    assert await given.answer_when_waiting(write, lambda: given.pass_hard_limit(ttl_ms=0)) == 404
    assert await given.answer() == 404


async def test_a_marker_lives_on_while_clients_retry() -> None:
    """R-132, G-052: TTL 200 ms, a retry every 150 ms; 200 once it has landed."""
    given = Given(*[NOTHING] * 4, ROWS)
    write = given.marker(ttl_ms=200)

    statuses = []
    for _ in range(2):
        given.clock.ms += 150
        statuses.append(await given.answer())
    given.settle(write)

    assert [*statuses, await given.answer()] == [503, 503, 200]


async def test_a_marker_whose_chain_has_expired_is_404() -> None:
    """R-126, R-352, G-053, G-054: the earliest expiry of response and chain is the marker's end."""
    given = Given(*[NOTHING] * 3)
    given.marker(expiry_ms=NOON_MS + 100)

    assert await given.answer() == 503
    given.clock.ms += 100
    assert await given.answer() == 404


# ── what its owner is told of a chain that has expired ────────────────────────────────────────────


@pytest.mark.parametrize(
    ("owner", "expires_at", "refusal"),
    [
        pytest.param(CREATED.owner, NOON_S, PreviousResponseExpiredError, id="expired"),
        pytest.param(CREATED.owner, NOON_S + 1, PreviousResponseNotFoundError, id="its end was not stored"),
        pytest.param("bob", NOON_S, PreviousResponseNotFoundError, id="another's"),
    ],
)
async def test_only_its_owner_is_told_that_a_response_has_expired(
    owner: str, expires_at: int, refusal: type[NotFoundError]
) -> None:
    """T2-08, D-18, D-37."""
    given = Given(NOTHING)
    given.reader.kept[ID] = (ROWS[0], expires_at)

    with pytest.raises(refusal, match=f"'{ID}'") as refused:
        await given.chains.resolve(ID, owner)

    assert refused.value.param == "previous_response_id"


async def test_an_ancestor_that_has_expired_is_named() -> None:
    """T2-08, D-37."""
    given = Given([[Recorded(ID, 1, replace(CREATED, previous_response_id="resp_0")), *ROWS[0][1:]]])
    given.reader.kept["resp_0"] = (ROWS[0], NOON_S)

    with pytest.raises(
        PreviousResponseExpiredError,
        match=r"'resp_1' cannot be continued, because its ancestor 'resp_0' has expired\.",
    ):
        await given.chains.resolve(ID)


async def test_a_store_that_fails_when_asked_what_has_expired_is_500() -> None:
    """R-123."""
    given = Given(NOTHING)
    given.reader.kept_error = BROKEN

    with pytest.raises(ChainReadError, match="the disk is on fire"):
        await given.chains.resolve(ID)

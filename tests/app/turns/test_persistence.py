"""The write that holds a turn's last event: limits, pins and what is left of it."""

import asyncio
import gc
from typing import Any

import pytest

from tests.app.turns.writes import EXPIRY_MS, ID, Given, LimitsMs, Lines
from tests.domain.stories import FAILED, NOON_MS
from tests.fakes.journal import FULL
from turnlog.app.settings import marker_ttl_ms
from turnlog.app.turns.pending import Sizes
from turnlog.domain.events import PersistHardTimedOut, TurnCommitted, TurnPersisted
from turnlog.domain.lifecycle import Status
from turnlog.domain.response import api_status

SLOW = f"WARNING [responses] the write of {ID} is slow and still in progress"
WEDGED = f"ERROR [responses] the write of {ID} has not settled in time"
FAILED_WRITE = f"ERROR [responses] the turn {ID} could not be stored"


# ── start and settlement ──────────────────────────────────────────────────────────────────────────


async def test_the_id_is_retained_before_the_write_starts_and_the_write_is_known_at_once() -> None:
    """R-069, R-128, R-351, R-353."""
    given = Given()

    given.ends()

    assert given.calls.since("append GenerationStarted") == ["retain 1", "append TurnCommitted", "register"]
    assert given.sizes == Sizes(writes=1, markers=0, expiries=1)
    assert given.pending.earliest_expiry_ms(ID, now_ms=NOON_MS) == EXPIRY_MS


async def test_a_write_that_lands_gives_back_everything_and_says_how_long_it_took(lines: Lines) -> None:
    """R-128, R-353, R-357, R-359."""
    given = Given()
    given.ends()
    assert given.live.ids == {ID}

    await given.lands()

    assert given.calls.since("register") == ["release 1", "append TurnPersisted"]
    assert isinstance(given.journal.told[-1], TurnPersisted)
    assert given.turn.response.status is Status.PERSISTED
    assert given.turn.settled.is_set()
    assert (given.sizes, given.live.ids, lines.told) == (Sizes(0, 0, 0), frozenset(), [])


async def test_a_write_that_fails_gives_back_everything_and_is_logged_once(lines: Lines) -> None:
    """R-353, R-361, G-077: no line from an exception that nobody took."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    given = Given()
    given.ends()

    await given.fails()
    gc.collect()

    assert given.calls.since("register") == ["release 1"]
    assert api_status(given.turn.response) == "completed"
    assert given.turn.settled.is_set()
    assert (given.sizes, given.live.ids) == (Sizes(0, 0, 0), frozenset())
    assert (lines.told, unhandled) == ([FAILED_WRITE], [])


async def test_a_write_that_cannot_be_started_is_undone(lines: Lines) -> None:
    """R-363: the client's answer stands."""
    given = Given()
    given.journal.raises = FULL

    given.ends()

    assert given.calls.since("append GenerationStarted") == ["retain 1", "append TurnCommitted", "release 1"]
    assert api_status(given.turn.response) == "completed"
    assert given.turn.settled.is_set()
    assert (given.sizes, given.live.ids, lines.told) == (Sizes(0, 0, 0), frozenset(), [FAILED_WRITE])


async def test_writes_of_one_model_retain_its_id_each_for_itself() -> None:
    """R-069, R-070, G-071."""
    given, other = Given(), Given()
    given.ends()
    other.ends()

    await given.lands()

    assert "release 1" in given.calls.made
    assert "release 1" not in other.calls.made


# ── the soft limit ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("hard", ["0", "60000"], ids=["hard limit off", "hard limit far"])
async def test_a_slow_write_is_warned_of_and_nothing_else(
    limits_ms: LimitsMs, hard: str, lines: Lines
) -> None:
    """R-070, R-354, R-355, R-356 (0 disables), G-066."""
    limits_ms("1", hard)
    given = Given()
    given.ends()

    await lines.until_one()

    assert lines.told == [SLOW]
    assert given.calls.since("append TurnCommitted") == ["register"]
    assert given.sizes == Sizes(writes=1, markers=0, expiries=1)
    assert given.live.ids == {ID}
    await given.lands()
    assert given.calls.since("register") == ["release 1", "append TurnPersisted"]


# ── the hard limit ────────────────────────────────────────────────────────────────────────────────


async def test_past_the_hard_limit_marker_then_retire_then_release(limits_ms: LimitsMs, lines: Lines) -> None:
    """R-075, R-130, R-356, G-059."""
    limits_ms("60000", "1")
    given = Given()
    given.ends()

    await given.calls.until("append PersistHardTimedOut")

    assert given.calls.since("register") == ["mark", "retire 1", "release 1", "append PersistHardTimedOut"]
    assert given.sizes == Sizes(writes=0, markers=1, expiries=0)
    assert given.pending.earliest_expiry_ms(ID, now_ms=NOON_MS) == EXPIRY_MS
    assert given.turn.response.status is Status.HARD_TIMED_OUT
    assert not given.turn.settled.is_set()
    assert (given.live.ids, lines.told) == (frozenset(), [WEDGED])


async def test_the_hard_limit_does_not_wait_for_the_soft_one(limits_ms: LimitsMs, lines: Lines) -> None:
    """R-356: it runs from the start of the write, independently."""
    limits_ms("2", "1")
    given = Given()
    given.ends()

    await lines.until_one()

    assert lines.told[0] == WEDGED


async def test_a_write_that_lands_after_all_takes_back_the_marker_and_the_retired_id(
    limits_ms: LimitsMs,
) -> None:
    """R-070, R-133, R-359, R-360: in that order in the log; the retain is released once."""
    limits_ms("60000", "1")
    given = Given()
    given.ends()
    await given.calls.until("append PersistHardTimedOut")

    await given.lands()

    assert given.calls.since("append PersistHardTimedOut") == ["unretire 1", "append TurnPersisted"]
    assert given.calls.made.count("release 1") == 1
    assert [type(event) for event in given.journal.told[-3:]] == [
        TurnCommitted,
        PersistHardTimedOut,
        TurnPersisted,
    ]
    assert given.sizes == Sizes(0, 0, 0)
    assert given.turn.response.status is Status.PERSISTED
    assert given.turn.settled.is_set()


async def test_a_write_that_fails_after_the_hard_limit_takes_back_the_same(
    limits_ms: LimitsMs, lines: Lines
) -> None:
    """R-133, R-359, R-361."""
    limits_ms("60000", "1")
    given = Given()
    given.ends()
    await given.calls.until("append PersistHardTimedOut")

    await given.fails()

    assert given.calls.since("append PersistHardTimedOut") == ["unretire 1"]
    assert given.sizes == Sizes(0, 0, 0)
    assert lines.told == [WEDGED, FAILED_WRITE]


async def test_an_id_that_no_model_has_is_not_taken_back(limits_ms: LimitsMs) -> None:
    """R-076."""
    limits_ms("60000", "1")
    given = Given()
    given.pins.has_model = False
    given.ends()
    await given.calls.until("append PersistHardTimedOut")

    await given.lands()

    assert given.calls.since("append PersistHardTimedOut") == ["append TurnPersisted"]


async def test_settlement_ends_both_limits(limits_ms: LimitsMs, lines: Lines) -> None:
    """R-357, R-358."""
    limits_ms("1", "2")
    given = Given()
    given.ends()
    both_passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.003, both_passed.set)

    await given.lands()
    await both_passed.wait()

    assert given.calls.since("register") == ["release 1", "append TurnPersisted"]
    assert lines.told == []


async def test_a_failed_turn_has_no_limits_but_does_not_stay_in_memory(
    limits_ms: LimitsMs, lines: Lines
) -> None:
    """R-346: only a committed turn is waited for, so there is nothing to mark and nothing to retain."""
    limits_ms("1", "2")
    given = Given()
    given.ends(FAILED)
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.003, passed.set)

    await passed.wait()

    assert given.calls.since("append GenerationStarted") == ["append TurnFailed"]
    assert (given.live.ids, given.sizes, lines.told) == (frozenset(), Sizes(0, 0, 0), [SLOW])
    await given.lands()
    assert given.calls.made[-1] == "append TurnFailed"
    assert given.turn.settled.is_set()


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("", 300_000), ("  ", 300_000), ("0", 0), (" 250.5 ", 250.5), ("soon", 300_000), ("-1", 300_000)],
)
def test_how_long_a_marker_lives_may_be_zero(
    monkeypatch: pytest.MonkeyPatch, text: str, expected_ms: float
) -> None:
    """R-136, R-394, R-395, R-397: kind B."""
    monkeypatch.setenv("MLX_HARD_TIMEOUT_MARKER_TTL_MS", text)

    assert marker_ttl_ms() == expected_ms

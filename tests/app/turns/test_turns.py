"""Turns as tasks of their own: lanes, aborts, shutdown, and what becomes of their writes."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.app.scripts import HELLO, entry
from tests.app.services import asked, running
from tests.fakes.engine import PuppetEngine
from tests.fakes.journal import HeldJournal, RefusingJournal
from turnlog.adapters.scripted.engine import ScriptedHandle
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import (
    PreviousResponseNotCompletedError,
    PreviousResponseNotFoundError,
    ResponseNotFoundError,
    ShuttingDownError,
    StorageTimeoutError,
)
from turnlog.domain.events import PersistHardTimedOut, TurnCommitted, TurnFailed, TurnPersisted
from turnlog.domain.lifecycle import Status
from turnlog.domain.ports import (
    Cancelled,
    EngineFailed,
    TextChunk,
    TurnStats,
)
from turnlog.domain.response import api_status, fold_stored
from turnlog.domain.tokens import pack, rebuild_prompt
from turnlog.domain.usage import Timing, Usage

ONE_BY_ONE = {"concurrency": 1, "turns": [entry("hang", {"text": "Hel"}, {"hang": True}), HELLO]}


async def first_delta(turn: LiveTurn) -> None:
    """Wait until the engine has said something."""
    async for frames in turn.frames.read():
        if b"output_text.delta" in b"".join(frames):
            return


def status(turn: LiveTurn) -> Status:
    """Where the turn is in its life."""
    return turn.response.status


async def test_a_turn_lives_through_the_states_of_the_table(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("hi"))
        assert status(turn) is Status.CREATED
        await turn.settled.wait()

        assert status(turn) is Status.PERSISTED
        assert (await service.retrieval.response(turn.response.id)).response.status is Status.PERSISTED


async def test_a_lane_lets_turns_in_one_after_the_other_in_order_of_arrival(tmp_path: Path) -> None:
    """R-080, G-162."""
    async with running(tmp_path, ONE_BY_ONE) as service:
        first = await service.turns.begin(asked("hang"))
        queued = [await service.turns.begin(asked("hi")) for _ in range(3)]
        await first_delta(first)
        assert [api_status(turn.response) for turn in queued] == ["queued"] * 3

        first.abort("cancelled")
        for turn in queued:
            await turn.settled.wait()

        starts = [turn.response.started.at_ms for turn in queued if turn.response.started]
        assert starts == sorted(starts)
        assert [api_status(turn.response) for turn in (first, *queued)] == ["cancelled", *["completed"] * 3]


async def test_a_turn_that_is_left_while_it_queues_gives_up_its_place_at_once(tmp_path: Path) -> None:
    """D-26, R-367, R-374, G-152: the engine never sees it, and the turn behind it moves up."""
    async with running(tmp_path, ONE_BY_ONE) as service:
        first = await service.turns.begin(asked("hang"))
        left = await service.turns.begin(asked("hi"))
        behind = await service.turns.begin(asked("hi"))

        left.abort("client_abort")
        await left.settled.wait()

        assert isinstance(left.response.ended, TurnFailed)
        assert (left.response.ended.reason, left.response.started) == ("client_abort", None)
        assert not first.ended.is_set()
        first.abort("cancelled")
        await behind.settled.wait()
        assert api_status(behind.response) == "completed"


async def test_a_turn_can_be_left_before_its_task_has_begun(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("hi"))
        turn.abort("client_abort")
        await turn.settled.wait()

        assert isinstance(turn.response.ended, TurnFailed)


async def test_an_abort_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """D-25, R-372, R-373, G-135: as D-25 reads them, the engine's end alone decides."""
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("hi"))
        await turn.ended.wait()
        turn.abort("client_abort")
        await turn.settled.wait()

        assert api_status(turn.response) == "completed"


async def test_shutting_down_ends_running_and_queued_turns_and_takes_no_new_ones(tmp_path: Path) -> None:
    """R-393."""
    async with running(tmp_path, ONE_BY_ONE) as service:
        turns = [await service.turns.begin(asked("hang")) for _ in range(2)]
        await first_delta(turns[0])

        await service.turns.shut_down(60)

        for turn in turns:
            stored = (await service.retrieval.response(turn.response.id)).response
            assert isinstance(stored.ended, TurnFailed)
            assert stored.ended.reason == "shutting_down"
        with pytest.raises(ShuttingDownError):
            await service.turns.begin(asked("hi"))


async def test_a_prompt_is_recorded_by_what_it_shares_with_the_turn_before(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        first = await service.turns.begin(asked("one two three"))
        await first.ended.wait()
        second = await service.turns.begin(asked("four", previous_response_id=first.response.id))
        await second.ended.wait()

        assert first.response.started
        assert second.response.started
        read = rebuild_prompt(first.response.started.prompt)
        record = second.response.started.prompt
        assert (record.base, record.shared) == (first.response.id, len(read))
        assert len(rebuild_prompt(record, read)) == record.tokens


async def test_a_running_turn_is_not_continued(tmp_path: Path) -> None:
    """D-12."""
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("hang"))

        with pytest.raises(PreviousResponseNotCompletedError):
            await service.turns.begin(asked("hi", previous_response_id=turn.response.id))


async def test_a_running_turn_that_is_not_stored_cannot_be_found_to_continue(tmp_path: Path) -> None:
    """D-30."""
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("hang", store=False))

        with pytest.raises(PreviousResponseNotFoundError):
            await service.turns.begin(asked("hi", previous_response_id=turn.response.id))


async def test_a_write_that_is_refused_leaves_the_answer_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R-361, G-074, G-075, G-077."""
    async with running(tmp_path, wrap=RefusingJournal()) as service:
        turn = await service.turns.begin(asked("hi"))
        await turn.settled.wait()

        assert api_status(turn.response) == "completed"
        with pytest.raises(ResponseNotFoundError):
            await service.retrieval.events(turn.response.id)
    messages = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert messages == [f"[responses] the turn {turn.response.id} could not be stored"]


async def test_a_write_that_takes_too_long_is_an_event_and_may_still_land(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R-354, R-356, R-360."""
    monkeypatch.setenv("MLX_POST_COMMIT_PERSIST_TIMEOUT_MS", "1")
    monkeypatch.setenv("MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS", "2")
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(PersistHardTimedOut)
        assert status(turn) is Status.HARD_TIMED_OUT

        held.land()
        await held.until(TurnPersisted)
        await turn.settled.wait()

        assert status(turn) is Status.PERSISTED
        # Written behind everything that was handed over before it.
        await asyncio.wrap_future(held.append([]))
        stored = await service.retrieval.events(turn.response.id)
        kinds = [type(recorded.event) for recorded in stored][-3:]
        assert kinds == [TurnCommitted, PersistHardTimedOut, TurnPersisted]
        assert fold_stored(recorded.event for recorded in stored).status is Status.PERSISTED
    assert [record.levelname for record in caplog.records if "write of" in record.message] == [
        "WARNING",
        "ERROR",
    ]


async def test_while_its_write_is_under_way_a_turn_is_read_from_memory(tmp_path: Path) -> None:
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(TurnCommitted)

        assert api_status((await service.retrieval.response(turn.response.id)).response) == "completed"
        held.land()


async def test_a_continuation_waits_for_the_write_of_what_it_continues(tmp_path: Path) -> None:
    """R-117, R-118, G-043."""
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(TurnCommitted)
        continuing = asyncio.create_task(
            service.turns.begin(asked("hi", previous_response_id=turn.response.id))
        )
        await asyncio.sleep(0)
        assert not continuing.done()

        held.land()

        second = await continuing
        await held.until(TurnCommitted)
        await second.ended.wait()
        held.land()


async def test_a_continuation_of_a_write_that_does_not_settle_is_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-120, G-046."""
    monkeypatch.setenv("MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS", "1")
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(TurnCommitted)

        with pytest.raises(StorageTimeoutError, match=turn.response.id):
            await service.turns.begin(asked("hi", previous_response_id=turn.response.id))
        held.land()


async def test_what_the_engine_raises_is_logged_with_model_and_response(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R-317, R-398, R-399: without the engine's own words, which may quote content; the event has them."""
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("boom"))
        await turn.settled.wait()

    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        f"[responses] the engine of model scripted failed at {turn.response.id}"
    ]


async def test_a_turn_that_breaks_is_not_played_on_for_nobody(tmp_path: Path) -> None:
    """Its slot is another turn's from then on, so the engine must neither compute it nor keep its cache."""
    no_output: Any = "?"
    handle = ScriptedHandle((1, 2, 3))
    engine = PuppetEngine(says=[no_output], when_cancelled=Cancelled(cache=handle))
    async with running(tmp_path) as service:
        service.models.put("scripted", engine)

        turn = await service.turns.begin(asked("hi"))
        await turn.settled.wait()

    assert api_status(turn.response) == "failed"
    assert (engine.running, engine.dropped) == ({}, [handle])


SPENT = TurnStats(
    prompt_tokens=7,
    output_tokens=2,
    cached_tokens=3,
    timing=Timing(first_token_ms=5.0),
    output_ids=(4, 5),
    unbatched=True,
)


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (EngineFailed("it broke", SPENT), "error"),
        (EngineFailed("too many states", SPENT, constraint_lost=True), "constraint_lost"),
        (Cancelled(stats=SPENT), "cancelled"),
    ],
)
async def test_what_a_failed_turn_has_spent_is_in_its_log(
    tmp_path: Path, final: EngineFailed | Cancelled, reason: str
) -> None:
    """R-323: an audit sees the tokens that were read and written for nothing."""
    async with running(tmp_path) as service:
        service.models.put("scripted", PuppetEngine(says=[TextChunk("Hel"), final]))

        turn = await service.turns.begin(asked("hi"))
        await turn.settled.wait()
        failed = (await service.retrieval.events(turn.response.id))[-1].event

    assert isinstance(failed, TurnFailed)
    assert failed.reason == reason
    assert failed.usage == Usage(input_tokens=7, output_tokens=2, cached_tokens=3)
    assert (failed.output_ids, failed.alone) == (pack((4, 5)), True)
    assert failed.timing.first_token_ms == 5.0
    assert failed.timing.queue_ms is not None


async def test_the_time_in_which_a_turn_waits_is_not_the_engines(tmp_path: Path) -> None:
    """`TURNLOG_TURN_TIMEOUT_S` begins with the engine: whoever waited as long is not timed out for it."""
    async with running(tmp_path, ONE_BY_ONE, turn_timeout_s=1.0) as service:
        hung = await service.turns.begin(asked("hang"))
        queued = await service.turns.begin(asked("hi"))
        await hung.settled.wait()
        await queued.settled.wait()

    assert [turn.response.status for turn in (hung, queued)] == [Status.FAILED, Status.PERSISTED]


async def test_many_turns_at_once_are_all_stored_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        turns = [await service.turns.begin(asked("long")) for _ in range(20)]
        for turn in turns:
            await turn.settled.wait()

        for turn in turns:
            stored = await service.retrieval.events(turn.response.id)
            assert [recorded.version for recorded in stored] == list(range(1, len(stored) + 1))
            assert fold_stored(recorded.event for recorded in stored).items == turn.response.items
            # Merged: 300 deltas are a few rows.
            assert len(stored) < 20

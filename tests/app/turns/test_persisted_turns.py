"""What becomes of turns whose last write is slow, wedged or refused, with real turns and a real store."""

import gc
import weakref
from pathlib import Path

import pytest

from tests.app.scripts import HELLO, entry
from tests.app.services import asked, running
from tests.app.turns.writes import LimitsMs, Lines
from tests.fakes.journal import HeldJournal, RefusingJournal
from turnlog.app.http.service import Service
from turnlog.app.turns.persistence import PendingAppends
from turnlog.app.turns.plan import Plan
from turnlog.domain.errors import PreviousResponseNotFoundError, ResponseNotFoundError, StorageTimeoutError
from turnlog.domain.events import PersistHardTimedOut, ResponseCreated, TurnCommitted
from turnlog.domain.response import Response, api_status


def pending_of(service: Service) -> PendingAppends:
    """The tracker of the service's store."""
    return service.turns.preparation.chains.pending


async def test_a_lane_is_free_while_the_write_of_the_turn_before_is_wedged(
    tmp_path: Path, lines: Lines
) -> None:
    """R-083, R-364, G-064, G-067: the answer is there, the lane is left, long before the soft limit."""
    one_by_one = {"concurrency": 1, "turns": [HELLO]}
    held = HeldJournal()
    async with running(tmp_path, one_by_one, wrap=held) as service:
        first = await service.turns.begin(asked("hi"))
        await first.ended.wait()

        second = await service.turns.begin(asked("hi"))
        await second.ended.wait()

        assert not first.settled.is_set()
        assert (api_status(second.response), lines.told) == ("completed", [])
        held.land()


async def test_a_wedged_write_is_come_again_until_it_lands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits_ms: LimitsMs
) -> None:
    """R-121, R-360, G-050."""
    monkeypatch.setenv("MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS", "1")
    limits_ms("60000", "1")
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(PersistHardTimedOut)
        with pytest.raises(StorageTimeoutError):
            await service.turns.begin(asked("hi", previous_response_id=turn.response.id))

        limits_ms("60000", "60000")
        held.land()

        second = await service.turns.begin(asked("hi", previous_response_id=turn.response.id))
        await held.until(TurnCommitted)
        await second.ended.wait()
        held.land()


async def test_a_turn_leaves_memory_at_the_hard_limit_and_is_then_read_from_the_log(
    tmp_path: Path, limits_ms: LimitsMs
) -> None:
    """R-360."""
    limits_ms("60000", "1")
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(PersistHardTimedOut)
        assert service.retrieval.live(turn.response.id) is None

        held.land()
        await turn.settled.wait()

        assert api_status((await service.retrieval.response(turn.response.id)).response) == "completed"


async def test_a_child_is_pending_no_longer_than_its_parent_can_be_read(tmp_path: Path) -> None:
    """R-126, R-127, R-352, G-049, G-054."""
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        parent = await service.turns.begin(asked("hi", retention_s=60))
        await parent.ended.wait()
        held.land()
        child = await service.turns.begin(asked("hi", previous_response_id=parent.response.id))
        await child.ended.wait()

        earliest_ms = pending_of(service).earliest_expiry_ms(child.response.id, now_ms=0)

        assert earliest_ms == parent.response.created.expires_at * 1000
        assert parent.response.created.expires_at < child.response.created.expires_at
        held.land()


async def test_wedged_writes_keep_no_turn_and_no_chain_in_memory(tmp_path: Path, limits_ms: LimitsMs) -> None:
    """R-126, R-352, G-063: an id and a number each."""
    held = HeldJournal()
    async with running(tmp_path, wrap=held) as service:
        parent = await service.turns.begin(asked("hi"))
        await parent.ended.wait()
        held.land()
        await parent.settled.wait()
        parent_id = parent.response.id
        del parent
        limits_ms("60000", "1")
        children = [
            weakref.ref(await service.turns.begin(asked("hi", previous_response_id=parent_id)))
            for _ in range(20)
        ]
        await held.until(PersistHardTimedOut, times=len(children))

        gc.collect()

        assert [child() for child in children] == [None] * len(children)
        assert not [each for each in gc.get_objects() if is_about(each, parent_id)]
        held.land()


async def test_a_turn_whose_write_is_under_way_keeps_neither_its_run_nor_its_prompt(tmp_path: Path) -> None:
    """R-126, R-352, G-063: it is only there to be read."""
    held = HeldJournal()
    async with running(tmp_path, {"concurrency": 1, "turns": [HELLO]}, wrap=held) as service:
        turn = await service.turns.begin(asked("unlike any other"))
        behind = await service.turns.begin(asked("hi"))
        await behind.ended.wait()

        gc.collect()

        assert turn is service.retrieval.live(turn.response.id)
        plans = [each for each in gc.get_objects() if isinstance(each, Plan)]
        assert "unlike any other" not in [message.content for plan in plans for message in plan.own]
        held.land()


def is_about(each: object, response_id: str) -> bool:
    """Whether it is a response in memory: this one or one that continues it."""
    if not isinstance(each, Response):
        return False
    created: ResponseCreated = each.created
    return response_id in (created.response_id, created.previous_response_id)


@pytest.mark.parametrize("stream", [False, True], ids=["G-074", "G-075"])
async def test_a_store_that_refuses_changes_no_answer(tmp_path: Path, *, stream: bool) -> None:
    """R-361, R-362, G-074, G-075: completed, without an error frame; 404 to who continues it."""
    async with running(tmp_path, wrap=RefusingJournal()) as service:
        turn = await service.turns.begin(asked("hi", stream=stream))
        frames = b"".join([frame async for told in turn.frames.read() for frame in told])
        await turn.settled.wait()

        assert b"event: response.completed" in frames
        assert b"event: error" not in frames
        with pytest.raises(PreviousResponseNotFoundError):
            await service.turns.begin(asked("hi", previous_response_id=turn.response.id))


async def test_a_turn_that_is_not_to_be_stored_has_no_write(tmp_path: Path) -> None:
    """R-346, D-30, G-076: a continuation is 404."""
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("hi", store=False))
        await turn.ended.wait()

        assert turn.response.id not in pending_of(service)
        with pytest.raises(PreviousResponseNotFoundError):
            await service.turns.begin(asked("hi", previous_response_id=turn.response.id))
        with pytest.raises(ResponseNotFoundError):
            await service.retrieval.events(turn.response.id)


async def test_instructions_are_no_part_of_the_stored_input(tmp_path: Path) -> None:
    """R-155, R-347, G-078."""
    async with running(tmp_path) as service:
        turn = await service.turns.begin(asked("hi", instructions="Be brief."))
        await turn.settled.wait()

        (created, *_) = await service.retrieval.events(turn.response.id)

        assert isinstance(created.event, ResponseCreated)
        assert created.event.instructions == "Be brief."
        assert [message.role for message in created.event.input] == ["user"]


async def test_shutting_down_sees_the_last_writes_through(tmp_path: Path) -> None:
    """R-393."""
    async with running(tmp_path, {"turns": [entry("hi", {"hang": True})]}) as service:
        turn = await service.turns.begin(asked("hi"))

        await service.turns.shut_down(60)

        assert turn.settled.is_set()
        assert service.retrieval.live(turn.response.id) is None

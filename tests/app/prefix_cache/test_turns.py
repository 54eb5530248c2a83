"""What turns leave warm, whatever becomes of them; every handle of the engine is counted."""

from typing import Any

import pytest

from tests.app.prefix_cache.services import (
    HUNDRED,
    ONE_BY_ONE,
    READ,
    SCRIPT,
    Running,
    cached_tokens,
    first_delta,
    prompt_tokens,
    running,
    words,
)
from tests.fakes.journal import RefusingJournal
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import ResponsesError
from turnlog.domain.events import FailureReason, TurnCommitted, TurnFailed
from turnlog.domain.response import api_status


def reason(turn: LiveTurn) -> FailureReason | None:
    """Why a turn failed."""
    ended = turn.response.ended
    return ended.reason if isinstance(ended, TurnFailed) else None


async def kept_warm(service: Running, previous: str) -> bool:
    """Whether a continuation finds its cache."""
    return (await service.turn("more", previous)).cache_class == "hit"


async def test_two_continuations_of_one_response_at_once_are_both_hits() -> None:
    """G-080, R-100, D-24: both are spared what the response has read, and each leaves its own cache."""
    async with running() as service:
        first = await service.turn(HUNDRED)

        both = [await service.begin(f"hang {side}", first.response.id) for side in ("left", "right")]
        for turn in both:
            await first_delta(turn)
        third = await service.turn("more", first.response.id)
        for turn in both:
            turn.abort("cancelled")
            await turn.settled.wait()

        assert [turn.cache_class for turn in (*both, third)] == ["hit"] * 3
        assert cached_tokens(third) == READ
        assert service.warm("entries") == 3


async def test_a_turn_that_fails_leaves_the_cache_it_came_from() -> None:
    """D-24: the response before it can be continued as if nothing had been."""
    async with running() as service:
        first = await service.turn(HUNDRED)

        failed = await service.turn("boom", first.response.id)

        assert failed.cache_class == "hit"
        again = await service.turn("more", first.response.id)
        assert (again.cache_class, cached_tokens(again)) == ("hit", READ)


async def test_a_cancelled_turn_leaves_its_prompt_for_another_try() -> None:
    """D-28, D8: without a name, so the next try is called fresh and yet spared."""
    async with running() as service:
        turn = await service.begin(f"{HUNDRED} hang")
        await first_delta(turn)
        turn.abort("client_abort")
        await turn.settled.wait()

        again = await service.turn(f"{HUNDRED} hi")

        assert reason(turn) == "client_abort"
        assert (again.cache_class, cached_tokens(again)) == ("fresh", prompt_tokens(HUNDRED) - 1)


async def test_a_prompt_is_kept_however_late_the_engine_lets_go_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-28: as it does with a long step; the turn was over long before."""
    monkeypatch.setattr("turnlog.app.turns.run.CANCEL_GRACE_S", 0.0)
    async with running() as service:
        turn = await service.begin(f"{HUNDRED} hang")
        await first_delta(turn)
        [engine] = service.source.engines
        let_go, asked = engine.cancel, list[str]()
        with monkeypatch.context() as busy:
            busy.setattr(engine, "cancel", asked.append)
            turn.abort("client_abort")
            await turn.settled.wait()
        assert service.warm("entries") == 0

        let_go(asked[0])
        await service.turn("hi")  # when this has ended, the engine has let go
        again = await service.turn(f"{HUNDRED} hi")

        assert reason(turn) == "client_abort"
        assert cached_tokens(again) == prompt_tokens(HUNDRED) - 1


async def test_a_model_that_goes_before_it_lets_go_of_a_prompt_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R-060, D-28: the prompt comes after its caches were dropped."""
    monkeypatch.setattr("turnlog.app.turns.run.CANCEL_GRACE_S", 0.0)
    async with running() as service:
        turn = await service.begin(f"{HUNDRED} hang")
        await first_delta(turn)
        [engine] = service.source.engines
        monkeypatch.setattr(engine, "cancel", lambda _: None)
        turn.abort("client_abort")
        await turn.settled.wait()

        await service.service.models.unload("scripted")
        await service.turn("hi")

        assert (service.warm("entries"), engine.kept) == (1, [])


async def test_a_turn_that_is_left_while_it_queues_leaves_nothing() -> None:
    """D-26, D-28: the engine has read nothing for it."""
    async with running(ONE_BY_ONE) as service:
        ahead = await service.begin("hang")
        queued = await service.begin(f"{HUNDRED} hang")
        await first_delta(ahead)

        queued.abort("client_abort")
        await queued.settled.wait()
        ahead.abort("cancelled")
        await ahead.settled.wait()

        assert service.warm("entries") == 0


async def test_a_model_that_is_unloaded_takes_its_caches_along() -> None:
    """R-060: the model that is loaded next has another cache."""
    async with running() as service:
        first = await service.turn(HUNDRED)
        assert service.warm("entries") == 1

        await service.service.models.unload("scripted")
        assert (service.warm("entries"), service.source.handle_bytes) == (0, [])

        second = await service.turn("more", first.response.id)
        assert (second.cache_class, cached_tokens(second)) == ("cold_replay", 0)


async def test_a_cache_that_went_while_its_turn_queued_is_only_missed() -> None:
    """D-24: what was found when the turn was accepted is not held for it."""
    async with running(ONE_BY_ONE, warm_entries=1) as service:
        first = await service.turn(HUNDRED)
        running_turn = await service.begin(f"hang {words(100, 'other')}")
        queued = await service.begin("more", first.response.id)
        await first_delta(running_turn)

        running_turn.abort("cancelled")
        await queued.settled.wait()

        assert api_status(queued.response) == "completed"
        assert (queued.cache_class, cached_tokens(queued)) == ("hit", 0)


async def test_a_model_that_goes_while_its_turn_queues_loses_no_handle() -> None:
    """R-139, D-24: the running turn ends on the old model, and its cache goes with it."""
    async with running(ONE_BY_ONE) as service:
        first = await service.turn(HUNDRED)
        running_turn = await service.begin("hang", first.response.id)
        queued = await service.begin("more", first.response.id)
        await first_delta(running_turn)

        await service.service.models.unload("scripted")
        running_turn.abort("cancelled")
        await queued.settled.wait()

        assert reason(queued) == "model_changed"
        assert await kept_warm(service, first.response.id) is False


async def test_a_turn_that_could_not_be_stored_is_warm_under_an_id_that_leads_nowhere() -> None:
    """G-074, R-361: its client is told that it went well, and resends its history next time."""
    async with running(wrap=RefusingJournal()) as service:
        turn = await service.turn(HUNDRED)
        assert api_status(turn.response) == "completed"
        assert service.warm("entries") == 1

        with pytest.raises(ResponsesError):
            await service.begin("more", turn.response.id)
        assert cached_tokens(await service.turn(f"{HUNDRED} more")) == prompt_tokens(HUNDRED) - 1


async def test_strict_turns_are_kept_warm_too() -> None:
    """D-22."""
    async with running(durability="strict") as service:
        first = await service.turn(HUNDRED)
        second = await service.turn("more", first.response.id)

        assert (second.cache_class, cached_tokens(second)) == ("hit", READ)


async def test_a_strict_turn_that_is_not_stored_loses_no_handle() -> None:
    """D-22, D-24."""
    async with running(wrap=RefusingJournal(TurnCommitted), durability="strict") as service:
        turn = await service.begin(HUNDRED)
        await turn.ended.wait()

        assert reason(turn) == "error"


async def test_an_engine_that_answers_too_late_keeps_nothing() -> None:
    """D-24: what comes after the turn has ended without it is dropped where it comes."""
    async with running(token_timeout_s=0.05) as service:
        turn = await service.turn(f"hang {HUNDRED}")

        assert reason(turn) == "engine_timeout"
        await service.service.models.unload("scripted")
        assert (service.warm("entries"), service.source.handle_bytes) == (0, [])


async def test_caches_leave_when_turns_need_their_memory() -> None:
    """D-15: a turn is never refused for the sake of what is only kept."""
    script = SCRIPT | {"kv_bytes_per_token": 10}
    async with running(script, memory_bytes=4_000, warm_bytes=4_000) as service:
        for about in ("a", "b", "c"):
            await service.turn(words(100, about), max_output_tokens=10)
        assert service.warm("entries") == 3

        turn = await service.begin(f"hang {words(280, 'd')}", max_output_tokens=10)
        await first_delta(turn)
        assert service.warm("entries") == 1
        turn.abort("cancelled")
        await turn.settled.wait()

        service.accounts()


@pytest.mark.parametrize("bounds", [{"warm_entries": 1}, {"warm_entries": 5}, {"warm_bytes": 2_000}])
async def test_many_turns_keep_within_the_bounds(bounds: dict[str, Any]) -> None:
    """D-15: two hundred turns of twenty conversations, some of which fail or are cancelled."""
    async with running(**bounds) as service:
        latest: dict[int, str | None] = {}
        for number in range(200):
            conversation = number % 20
            text = ("boom", "wait", "hi", "hi", "hi", "add")[number % 6]
            turn = await service.begin(
                f"{text} {words(10, f'about-{conversation}-')}",
                latest.get(conversation) if number % 6 in (2, 3, 4) else None,
            )
            if text == "wait":
                turn.abort("cancelled")
            await turn.ended.wait()
            if text == "hi":
                latest[conversation] = turn.response.id
            assert service.warm("entries") <= bounds.get("warm_entries", 32)
            assert service.warm("bytes") <= bounds.get("warm_bytes", 1_000_000)
        service.accounts()


async def test_turns_at_once_lose_no_handle() -> None:
    """D-24: forty turns over each other, of which every fourth is cancelled in the middle."""
    async with running(SCRIPT | {"concurrency": 8}, warm_entries=3, max_queue_depth_per_model=64) as service:
        first = await service.turn(HUNDRED)
        turns = []
        for number in range(40):
            text = ("hang", "hi", "boom", "tell")[number % 4]
            turns.append(await service.begin(f"{text} {number}", first.response.id if number % 3 else None))
        for turn in turns[::4]:
            turn.abort("cancelled")
        for turn in turns:
            await turn.settled.wait()

        statuses = [api_status(turn.response) for turn in turns]
        assert statuses == ["cancelled", "completed", "failed", "completed"] * 10
        service.accounts()

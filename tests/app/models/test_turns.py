"""Turns on a floor of several models, over a real store: budgets, bindings, identity and late writes."""

import asyncio
from pathlib import Path

import pytest

from tests.app.models.services import (
    NOTHING,
    HeldSource,
    asked,
    begun,
    counts,
    held_by_requests,
    hold_look_ups,
    saying,
    serving,
    source_of,
)
from tests.fakes.journal import HeldJournal
from turnlog.app.http.service import Service
from turnlog.app.models.lane import LaneCounts
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import (
    BindingChangedError,
    ChainReadError,
    ColdQueueFullError,
    EngineError,
    ModelIdentityError,
    PreviousResponseNotFoundError,
    QueueFullError,
)
from turnlog.domain.events import TurnCommitted, TurnFailed
from turnlog.domain.items import MessageItem
from turnlog.domain.response import api_status

ALPHA, BETA = saying("alpha here"), saying("beta here")
TWO = {"alpha": ALPHA, "beta": BETA}


async def done(service: Service, model: str, previous: str | None = None) -> LiveTurn:
    """A turn that has been stored."""
    turn = await service.turns.begin(asked(model, previous_response_id=previous))
    await turn.settled.wait()
    return turn


async def first_delta(turn: LiveTurn) -> None:
    """Wait until the turn runs."""
    async for frames in turn.frames.read():
        if b"output_text.delta" in b"".join(frames):
            return


async def hanging(service: Service, model: str) -> LiveTurn:
    """A turn that runs until it is aborted."""
    turn = await service.turns.begin(asked(model, "hang"))
    await first_delta(turn)
    return turn


async def queued_behind(service: Service, model: str, previous: str | None = None) -> LiveTurn:
    """A turn that waits in the lane."""
    turn = await service.turns.begin(asked(model, previous_response_id=previous))
    await asyncio.sleep(0)  # its task asks for its slot
    return turn


def said(turn: LiveTurn) -> tuple[str, str]:
    """How the turn ended, and what it answered."""
    ended = turn.response.ended
    assert isinstance(ended, TurnCommitted)
    answer = "".join(item.text for item in turn.response.items if isinstance(item, MessageItem))
    return api_status(turn.response), answer


async def recorded(service: Service) -> list[str]:
    """The turns in the log, the newest first."""
    page = await asyncio.wrap_future(service.audit.log.find(AuditFilter()))
    return [row.response_id for row in page.rows]


# ── budgets ──


async def test_as_many_wait_as_may_and_all_of_them_succeed_later(tmp_path: Path) -> None:
    """R-030, R-036, R-038, R-047, G-008, G-009: the last two are refused while the turn runs."""
    async with serving(tmp_path, {"alpha": ALPHA}, max_queue_depth_per_model=16) as service:
        running = await hanging(service, "alpha")
        waiting = [await queued_behind(service, "alpha") for _ in range(16)]

        for _ in range(2):
            with pytest.raises(QueueFullError):
                await service.turns.begin(asked("alpha"))
        assert (running.ended.is_set(), counts(service, "alpha")) == (False, LaneCounts(1, 16, 0))
        running.abort("cancelled")
        for turn in waiting:
            await turn.settled.wait()

        assert {api_status(turn.response) for turn in waiting} == {"completed"}
        assert held_by_requests(service, "alpha") == (NOTHING, 0)
        assert [record.model for record in service.models.load_records] == ["alpha"]


async def test_a_cold_model_is_loaded_once_for_all_and_one_too_many_is_refused(tmp_path: Path) -> None:
    """R-032, R-042, R-045, G-011, G-024: refused at once, though the load does not finish."""
    held = {"alpha": HeldSource}
    async with serving(tmp_path, {"alpha": ALPHA}, held=held, max_queue_depth_per_model=2) as service:
        waiting = await begun(*(service.turns.begin(asked("alpha")) for _ in range(3)))

        with pytest.raises(ColdQueueFullError):
            await service.turns.begin(asked("alpha"))
        assert [task.done() for task in waiting] == [False] * 3
        source_of(service, "alpha").go_on()
        turns = await asyncio.gather(*waiting)
        for turn in turns:
            await turn.settled.wait()

        assert [api_status(turn.response) for turn in turns] == ["completed"] * 3
        assert (source_of(service, "alpha").loads, held_by_requests(service, "alpha")) == (1, (NOTHING, 0))
        assert service.models.status("alpha").queued_turns == 0


async def test_a_model_that_cannot_be_loaded_refuses_and_keeps_nothing(tmp_path: Path) -> None:
    """R-035, R-050, G-026: nothing is recorded of the turn either (D-26)."""
    broken = saying("never", load_error="no such file", weight_bytes=10)
    async with serving(tmp_path, {"alpha": broken}) as service:
        for _ in range(2):
            with pytest.raises(EngineError, match="no such file"):
                await service.turns.begin(asked("alpha"))

        admission = service.models.status("alpha")
        assert (admission.state, admission.queued_turns, service.models.memory.used.total()) == (
            "declared",
            0,
            0,
        )
        assert [record.error for record in service.models.load_records] == ["no such file"] * 2
        assert await recorded(service) == []


async def test_a_continuation_counts_while_it_is_looked_up_and_a_miss_gives_all_back(tmp_path: Path) -> None:
    """R-034, R-035, R-066, R-125, G-017: it is one unit of the budget, though it is in no lane yet."""
    async with serving(tmp_path, {"alpha": ALPHA}, max_queue_depth_per_model=1) as service:
        running = await hanging(service, "alpha")
        reader = hold_look_ups(service)
        (stuck,) = await begun(service.turns.begin(asked("alpha", previous_response_id="resp_0")))
        await reader.until_asked()
        assert counts(service, "alpha") == LaneCounts(active=1, queued=0, reservations=1)

        with pytest.raises(QueueFullError):
            await service.turns.begin(asked("alpha"))
        reader.go_on()
        with pytest.raises(PreviousResponseNotFoundError):
            await stuck

        assert counts(service, "alpha") == LaneCounts(active=1, queued=0, reservations=0)
        running.abort("cancelled")
        await running.settled.wait()
        assert held_by_requests(service, "alpha") == (NOTHING, 0)


async def test_a_store_that_fails_keeps_no_permit(tmp_path: Path) -> None:
    """R-035, R-123, G-020: the next request is answered."""
    async with serving(tmp_path, {"alpha": ALPHA}, max_queue_depth_per_model=1) as service:
        await service.models.load("alpha")
        reader = hold_look_ups(service)
        (failing,) = await begun(service.turns.begin(asked("alpha", previous_response_id="resp_0")))
        await reader.until_asked()

        reader.go_on(OSError("disk exploded"))
        with pytest.raises(ChainReadError, match="disk exploded"):
            await failing

        assert held_by_requests(service, "alpha") == (NOTHING, 0)
        assert said(await done(service, "alpha")) == ("completed", "alpha here")


async def test_a_client_that_leaves_while_its_chain_is_looked_up_keeps_nothing(tmp_path: Path) -> None:
    """R-035, R-365, R-366, D-26, G-154: no turn was begun, so none is recorded."""
    async with serving(tmp_path, {"alpha": ALPHA}) as service:
        first = await done(service, "alpha")
        reader = hold_look_ups(service)
        request = asked("alpha", previous_response_id=first.response.id)
        (left,) = await begun(service.turns.begin(request))
        await reader.until_asked()
        assert held_by_requests(service, "alpha") == (LaneCounts(0, 0, 1), 1)

        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        reader.go_on()

        assert held_by_requests(service, "alpha") == (NOTHING, 0)
        assert await recorded(service) == [first.response.id]


async def test_a_client_that_leaves_the_queue_makes_room_for_the_next(tmp_path: Path) -> None:
    """D-26, R-367, R-374, G-152: at once; its turn is recorded, and the engine never sees it."""
    async with serving(tmp_path, {"alpha": ALPHA}, max_queue_depth_per_model=1) as service:
        running = await hanging(service, "alpha")
        left = await queued_behind(service, "alpha")

        left.abort("client_abort")
        await left.settled.wait()
        assert (counts(service, "alpha"), left.response.started) == (LaneCounts(1, 0, 0), None)
        next_one = await service.turns.begin(asked("alpha"))
        running.abort("cancelled")
        await next_one.settled.wait()

        assert isinstance(left.response.ended, TurnFailed)
        assert left.response.ended.reason == "client_abort"
        assert (said(next_one)[0], held_by_requests(service, "alpha")) == ("completed", (NOTHING, 0))


# ── bindings that change ──


async def test_a_swap_during_the_look_up_of_a_chain_refuses_the_continuation(tmp_path: Path) -> None:
    """R-035, R-138, R-140, G-021, G-032: no turn is begun on either model."""
    async with serving(tmp_path, TWO) as service:
        first = await done(service, "alpha")
        old = service.models.registry.find("alpha")
        assert old
        reader = hold_look_ups(service)
        request = asked("alpha", previous_response_id=first.response.id)
        (stuck,) = await begun(service.turns.begin(request))
        await reader.until_asked()
        assert old.lane.counts == LaneCounts(active=0, queued=0, reservations=1)

        await service.models.swap("alpha", "beta")
        reader.go_on()
        with pytest.raises(BindingChangedError, match=r"binding changed.*previous response") as refusal:
            await stuck

        assert (refusal.value.param, old.lane.counts, old.leases) == ("model", NOTHING, 0)
        assert held_by_requests(service, "alpha") == (NOTHING, 0)
        assert await recorded(service) == [first.response.id]


async def test_a_chain_that_is_not_found_is_a_404_whatever_the_name_means(tmp_path: Path) -> None:
    """R-141."""
    async with serving(tmp_path, TWO) as service:
        await service.models.load("alpha")
        reader = hold_look_ups(service)
        (stuck,) = await begun(service.turns.begin(asked("alpha", previous_response_id="resp_0")))
        await reader.until_asked()

        await service.models.swap("alpha", "beta")
        reader.go_on()

        with pytest.raises(PreviousResponseNotFoundError):
            await stuck


@pytest.mark.parametrize("continues", [False, True])
async def test_a_swap_while_a_turn_is_queued_fails_it_and_the_running_one_goes_on(
    continues: bool, tmp_path: Path
) -> None:
    """R-139, R-140, D-26, G-033, G-034: also if it continues no chain; the next one gets the new model."""
    async with serving(tmp_path, TWO) as service:
        previous = (await done(service, "alpha")).response.id if continues else None
        running = await hanging(service, "alpha")
        queued = await queued_behind(service, "alpha", previous)

        await service.models.swap("alpha", "beta")
        after = await done(service, "alpha")
        assert (running.ended.is_set(), queued.ended.is_set()) == (False, False)
        running.abort("cancelled")
        await queued.settled.wait()

        assert queued.response.started is None
        assert isinstance(queued.response.ended, TurnFailed)
        assert queued.response.ended.reason == "model_changed"
        assert "binding changed" in str(queued.response.ended.message)
        stored = (await service.retrieval.response(queued.response.id)).response
        assert stored.ended == queued.response.ended
        assert said(after) == ("completed", "beta here")


# ── the model of a chain ──


async def test_a_chain_is_not_continued_by_another_model(tmp_path: Path) -> None:
    """R-142, R-145, R-147, G-035, G-042: nothing is recorded, and nothing held."""
    async with serving(tmp_path, TWO) as service:
        first = await done(service, "alpha")

        with pytest.raises(ModelIdentityError) as refusal:
            await service.turns.begin(asked("beta", previous_response_id=first.response.id))

        assert refusal.value.param == "model"
        assert held_by_requests(service, "beta") == (NOTHING, 0)
        assert said(await done(service, "alpha", first.response.id)) == ("completed", "alpha here")


async def test_a_chain_is_not_continued_under_a_name_that_means_another_model_by_now(tmp_path: Path) -> None:
    """R-145, R-147, G-036: the name alone does not suffice."""
    async with serving(tmp_path, TWO) as service:
        first = await done(service, "alpha")
        await service.models.swap("alpha", "beta")

        with pytest.raises(ModelIdentityError, match="different model instance"):
            await service.turns.begin(asked("alpha", previous_response_id=first.response.id))


async def test_a_chain_goes_on_under_any_name_of_its_model(tmp_path: Path) -> None:
    """R-060, R-146, G-037."""
    async with serving(tmp_path, {"alpha": ALPHA, "alias": "alpha"}) as service:
        first = await done(service, "alpha")
        second = await done(service, "alias", first.response.id)
        third = await done(service, "alpha", second.response.id)

        assert [said(turn)[0] for turn in (second, third)] == ["completed"] * 2
        assert {turn.response.created.instance_id for turn in (first, second, third)} == {1}


async def test_a_chain_of_an_earlier_process_goes_on_by_its_name(tmp_path: Path) -> None:
    """R-143, R-145, D-27, G-038: whatever the name means there."""
    async with serving(tmp_path, {"alpha": ALPHA}) as service:
        first = await done(service, "alpha")

    async with serving(tmp_path, {"alpha": BETA, "other": ALPHA}) as later:
        await done(later, "other")
        second = await done(later, "alpha", first.response.id)

    assert said(second) == ("completed", "beta here")
    # Within one process, another id and other weights would be another model.
    assert [turn.response.created.instance_id for turn in (first, second)] == [1, 2]
    assert first.response.created.boot_id != second.response.created.boot_id


async def test_a_model_that_was_unloaded_and_loaded_again_is_the_same_model(tmp_path: Path) -> None:
    """D-27: its id is another, its weights are not."""
    async with serving(tmp_path, {"alpha": ALPHA}) as service:
        first = await done(service, "alpha")
        await service.models.unload("alpha")
        assert service.models.status("alpha").state == "declared"

        second = await done(service, "alpha", first.response.id)

        ids = [turn.response.created.instance_id for turn in (first, second)]
        assert (said(second)[0], ids) == ("completed", [1, 2])


async def test_a_turn_on_a_model_that_is_unloaded_meanwhile_ends_on_it(tmp_path: Path) -> None:
    """R-065, R-066, G-031: and whoever comes while it runs waits behind it, on the same object."""
    async with serving(tmp_path, {"alpha": ALPHA}) as service:
        running = await hanging(service, "alpha")
        await service.models.unload("alpha")
        late = await queued_behind(service, "alpha")
        assert counts(service, "alpha") == LaneCounts(active=1, queued=1, reservations=0)

        running.abort("cancelled")
        await late.settled.wait()

        ids = [turn.response.created.instance_id for turn in (running, late)]
        assert (said(late)[0], ids, len(service.models.load_records)) == ("completed", [1, 1], 1)


# ── writes that take their time ──


async def test_a_turn_holds_its_model_no_longer_than_it_runs(tmp_path: Path) -> None:
    """R-083, R-364, R-387, G-064, G-067: its write does not keep the next one waiting, nor the lease."""
    held = HeldJournal()
    async with serving(tmp_path, {"alpha": ALPHA}, wrap=held) as service:
        first = await service.turns.begin(asked("alpha"))
        await first.ended.wait()
        second = await service.turns.begin(asked("alpha"))
        await second.ended.wait()
        await held.until(TurnCommitted, 2)
        await asyncio.sleep(0)  # the task of the turn comes to its end

        binding = service.models.registry.find("alpha")
        assert binding
        assert (held_by_requests(service, "alpha"), binding.pins) == ((NOTHING, 0), 2)
        assert (first.settled.is_set(), second.settled.is_set()) == (False, False)
        held.land()
        for turn in (first, second):
            await turn.settled.wait()
        assert binding.pins == 0


async def test_a_model_that_came_back_before_the_write_landed_is_still_the_chains(tmp_path: Path) -> None:
    """R-065, R-069, R-355, G-065, G-066: the same object has its id still, and the chain goes on."""
    held = HeldJournal()
    async with serving(tmp_path, {"alpha": ALPHA}, wrap=held) as service:
        first = await service.turns.begin(asked("alpha"))
        await first.ended.wait()
        await held.until(TurnCommitted)
        registry = service.models.registry
        engine = service.models.engine("alpha")

        registry.unbind("alpha")
        registry.bind("alpha", engine, now_s=0)
        (continuation,) = await begun(
            service.turns.begin(asked("alpha", previous_response_id=first.response.id))
        )
        held.land()
        second = await continuation
        await second.ended.wait()
        held.land()
        await second.settled.wait()

        ids = [turn.response.created.instance_id for turn in (first, second)]
        assert (said(second)[0], ids) == ("completed", [1, 1])

"""Loads and turns within one budget of memory: what gives way, what waits, and for how long."""

import pytest

from tests.app.models.conftest import NewFloor
from tests.app.models.floor import WAIT_S, FakeSource, Floor, Request
from turnlog.app.models.memory import MemoryReservation


def loaded(floor: Floor, *names: str) -> None:
    """Have these models in memory."""
    for name in names:
        floor.begin(floor.models.load(name)).result()


def where(*requests: Request) -> list[str]:
    """How far the requests have come."""
    return [request.where for request in requests]


def states(floor: Floor) -> dict[str, str]:
    """What the operator sees."""
    return {admission.name: admission.state for admission in floor.models.listed()}


def floor_of(
    new_floor: NewFloor, budget_bytes: int, **weights_bytes: int
) -> tuple[Floor, dict[str, FakeSource]]:
    """A floor with so much memory, and models that take so much of it."""
    sources = {name: FakeSource(name, weight_bytes=each) for name, each in weights_bytes.items()}
    return new_floor(dict(sources), budget_bytes=budget_bytes), sources


def test_warm_caches_are_given_up_first_then_the_model_that_was_unused_longest(new_floor: NewFloor) -> None:
    """docs/decisions/0009: and of the models only as many as it takes."""
    floor, sources = floor_of(new_floor, 100, a=30, b=30, c=20, d=50)
    loaded(floor, "a", "b", "c")
    floor.request("a").release()
    warm = floor.models.memory.take("warm", 15)
    assert warm
    asked: list[int] = []

    def shrink(missing_bytes: int) -> int:
        asked.append(missing_bytes)
        given_up = min(missing_bytes, warm.count_bytes)
        warm.resize(warm.count_bytes - given_up)
        return given_up

    floor.models.give_up_first(shrink, lambda _: None)
    turn = floor.request("d")

    assert turn.where == "running"
    assert states(floor) == {"a": "resident", "b": "declared", "c": "resident", "d": "resident"}
    assert (asked[0], warm.count_bytes) == (45, 0)
    assert {name: source.engine.closed for name, source in sources.items()} == {
        "a": 0,
        "b": 1,
        "c": 0,
        "d": 0,
    }


def test_a_busy_model_is_not_given_up_and_the_request_is_refused_in_time(new_floor: NewFloor) -> None:
    """docs/decisions/0009: 503 after `memory_wait_s`, with nothing left behind."""
    floor, sources = floor_of(new_floor, 100, a=60, b=60)
    busy, refused = floor.request("a"), floor.request("b")

    floor.run(WAIT_S - 1)
    assert where(busy, refused) == ["running", "loading"]
    floor.run(2)

    assert where(busy, refused) == ["running", "model_unavailable"]
    assert (floor.models.memory.is_waited_for, sources["b"].loads, sources["a"].engine.closed) == (
        False,
        0,
        0,
    )
    assert floor.models.load_records[-1].error == (
        "No memory became free for the model 'b' within 60 s: it needs about 60 bytes, and 40 are free. "
        "Retry later."
    )


def test_a_load_goes_on_as_soon_as_the_model_in_its_way_is_idle(new_floor: NewFloor) -> None:
    """Whichever way its last request leaves: it is looked at again then."""
    floor, sources = floor_of(new_floor, 100, a=60, b=60)
    turn, leased, loading = floor.request("a"), floor.admitted("a"), floor.request("b")
    leased.take_lease()

    turn.release()
    assert where(turn, leased, loading) == ["done", "leased", "loading"]
    leased.cut_short()

    assert where(leased, loading) == ["cut short", "running"]
    assert (sources["a"].engine.closed, sources["b"].engine.closed) == (1, 0)


def test_a_request_that_was_only_admitted_keeps_its_model_in_memory(new_floor: NewFloor) -> None:
    """R-034: its reservation is a use; when it is given back, the load goes on."""
    floor, sources = floor_of(new_floor, 100, a=60, b=60)
    loaded(floor, "a")
    admitted, loading = floor.admitted("a"), floor.request("b")
    assert (loading.where, sources["a"].engine.closed) == ("loading", 0)

    admitted.cut_short()

    assert (loading.where, sources["a"].engine.closed) == ("running", 1)


def test_a_model_that_was_just_loaded_stays_for_those_who_asked_for_it(new_floor: NewFloor) -> None:
    """docs/decisions/0009: the next load does not take it away before they have come round to their lease."""
    floor, sources = floor_of(new_floor, 100, a=60, b=60)
    floor.threads.held = True
    first, second = floor.request("a"), floor.request("b")
    yielding = floor.request("a", yields=True)

    floor.go_on()

    assert where(first, second, yielding) == ["running", "loading", "queued"]
    assert sources["a"].engine.closed == 0


def test_turns_do_not_wait_for_a_load_that_waits_for_their_model_to_be_idle(new_floor: NewFloor) -> None:
    """docs/decisions/0009: they keep their model busy, so they would wait for the load, and it for them."""
    floor, _ = floor_of(new_floor, 100, a=60, b=60)
    running, loading = floor.request("a", 10), floor.request("b")

    queued = floor.request("a", 10)
    running.release()

    assert where(running, queued, loading) == ["done", "running", "loading"]
    queued.release()
    assert where(queued, loading) == ["done", "running"]


def test_new_turns_wait_for_a_load_that_the_running_ones_make_room_for(new_floor: NewFloor) -> None:
    """R-053, R-054, R-057, D-29, G-028: the lane first, the gate inside it."""
    sources = {"a": FakeSource("a", weight_bytes=10, concurrency=2), "b": FakeSource("b", weight_bytes=40)}
    floor = new_floor(dict(sources), budget_bytes=100)
    running, loading = floor.request("a", 60), floor.request("b")

    later = floor.request("a", 20)
    assert where(running, loading, later) == ["running", "loading", "queued"]
    assert floor.models.registry.bindings()[0].lane.counts.active == 2
    running.release()

    assert where(running, loading, later) == ["done", "running", "running"]
    assert dict(floor.models.memory.used) == {"weights": 50, "running": 20}


def test_a_load_that_gives_up_lets_the_turns_go_on_that_it_held_up(new_floor: NewFloor) -> None:
    """R-054: the gate is open again."""
    sources = {"a": FakeSource("a", weight_bytes=10, concurrency=2), "b": FakeSource("b", weight_bytes=40)}
    floor = new_floor(dict(sources), budget_bytes=100)
    floor.request("a", 60)
    loading, later = floor.request("b"), floor.request("a", 20)

    floor.run(WAIT_S + 1)

    assert where(loading, later) == ["model_unavailable", "running"]


def test_a_turn_waits_for_memory_and_is_refused_in_time(new_floor: NewFloor) -> None:
    """docs/decisions/0009: in its slot; whoever comes behind it goes on then."""
    floor = new_floor({"a": FakeSource("a", weight_bytes=10, concurrency=3)}, budget_bytes=100)
    first = floor.request("a", 60)
    refused = floor.request("a", 40)
    floor.run(WAIT_S - 1)
    let_in = floor.request("a", 30)
    assert where(first, refused, let_in) == ["running", "queued", "queued"]

    floor.run(2)

    assert where(first, refused, let_in) == ["running", "model_unavailable", "running"]
    assert floor.models.memory.used["running"] == 90


def test_a_turn_that_has_left_its_memory_to_the_warm_caches_gives_back_nothing_twice(
    new_floor: NewFloor,
) -> None:
    """From the end of a turn the pool counts its cache, so the turn's own reservation becomes 0."""
    floor = new_floor({"a": FakeSource("a")}, budget_bytes=100)
    turn = floor.request("a", 60)
    reservation = turn.reservation
    assert isinstance(reservation, MemoryReservation)

    reservation.resize(0)
    floor.models.memory.take("warm", 60)
    turn.release()

    assert dict(floor.models.memory.used) == {"weights": 0, "running": 0, "warm": 60}


def test_two_operators_do_not_take_memory_from_each_other_for_ever(new_floor: NewFloor) -> None:
    """Each load is made once; the one that came last is there in the end."""
    floor, sources = floor_of(new_floor, 100, a=60, b=60)

    floor.threads.held = True
    operators = [floor.begin(floor.models.load(name)) for name in "ab"]
    for _ in range(3):  # a is read, closed for b, and b is read
        floor.go_on()

    assert [operator.is_done for operator in operators] == [True, True]
    assert states(floor) == {"a": "declared", "b": "resident"}
    assert [source.loads for source in sources.values()] == [1, 1]


@pytest.mark.parametrize(
    ("budget_bytes", "context_window", "window_tokens"),
    [(None, 50, 50), (None, None, None), (100, 50, 50), (100, 80, 70), (100, None, 70), (30, 50, 1)],
)
def test_a_turn_may_have_as_many_tokens_as_there_is_memory_for_beside_the_weights(
    budget_bytes: int | None, context_window: int | None, window_tokens: int | None, new_floor: NewFloor
) -> None:
    source = FakeSource("a", weight_bytes=30, context_window=context_window)
    floor = new_floor({"a": source}, budget_bytes=budget_bytes)
    loaded(floor, "a")

    assert floor.models.window_tokens(source.engine) == window_tokens

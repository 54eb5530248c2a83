"""How models come and go: loads that are shared, names that are swapped, unloads that wait for turns."""

import pytest

from tests.app.models.conftest import NewFloor
from tests.app.models.floor import FakeSource, Floor, Request
from tests.domain.stories import NOON_MS
from turnlog.app.models import ModelStatus
from turnlog.app.models.lane import LaneCounts
from turnlog.app.models.loading import LoadRecord
from turnlog.domain.errors import EngineError, ModelNotFoundError, QueueFullError


def loaded(floor: Floor, *names: str) -> None:
    """Have these models in memory."""
    for name in names:
        floor.begin(floor.models.load(name)).result()


def where(*requests: Request) -> list[str]:
    """How far the requests have come."""
    return [request.where for request in requests]


# ── loads ──


def test_a_name_that_was_not_declared_is_refused_at_once_and_lists_those_that_were(
    new_floor: NewFloor,
) -> None:
    """R-058: by requests and by what an operator does."""
    floor = new_floor({"a": FakeSource("a"), "b": FakeSource("b")})
    refusal = r"^The model 'c' does not exist\. Served models: a, b$"

    with pytest.raises(ModelNotFoundError, match=refusal):
        floor.request("c")
    for work in (floor.models.load("c"), floor.models.unload("c"), floor.models.swap("a", "c")):
        with pytest.raises(ModelNotFoundError, match=refusal):
            floor.begin(work).result()


def test_one_load_is_for_all_who_ask_for_a_model_meanwhile(new_floor: NewFloor) -> None:
    """R-032, R-042, R-045, R-047, R-052, R-055, G-011, G-024: one too many is refused at once."""
    source = FakeSource("a")
    floor = new_floor({"a": source}, max_waiting=2)
    floor.threads.held = True
    requests = [floor.request("a") for _ in range(3)]
    with pytest.raises(QueueFullError, match="3 requests are waiting for the model to load"):
        floor.request("a")
    assert (where(*requests), floor.models.status("a").state) == (["loading"] * 3, "loading")

    floor.go_on()

    assert (where(*requests), source.loads) == (["running", "queued", "queued"], 1)
    with pytest.raises(QueueFullError):
        floor.request("a")
    for request in requests:
        request.release()
    assert where(*requests) == ["done"] * 3
    assert floor.models.load_records == [LoadRecord("responses", "a", NOON_MS, NOON_MS, None)]
    assert floor.models.status("a") == ModelStatus(
        name="a",
        state="resident",
        registered_s=NOON_MS // 1000,
        instance_id=1,
        weight_bytes=0,
        aliases=(),
        capacity=1,
        active_turns=0,
        queued_turns=0,
        queue_limit=2,
        loads=tuple(floor.models.load_records),
    )


def test_a_load_that_fails_fails_for_all_who_wait_and_the_next_request_tries_again(
    new_floor: NewFloor,
) -> None:
    """R-035, R-050, R-055, G-026: nothing is left of it but its record."""
    source = FakeSource("a", weight_bytes=60)
    floor = new_floor({"a": source}, budget_bytes=100, max_waiting=1)
    floor.threads.held, source.error = True, "no such file"
    failing = [floor.request("a") for _ in range(2)]

    floor.run(3)
    floor.go_on()
    assert where(*failing) == ["engine_error"] * 2
    assert (floor.models.memory.used.total(), floor.models.status("a").queued_turns) == (0, 0)
    source.error = None
    next_one = floor.request("a")
    floor.go_on()

    assert (next_one.where, source.loads) == ("running", 2)
    assert floor.models.load_records == [
        LoadRecord("responses", "a", NOON_MS, NOON_MS + 3000, "no such file"),
        LoadRecord("responses", "a", NOON_MS + 3000, NOON_MS + 3000, None),
    ]


def test_a_client_that_leaves_takes_the_load_from_nobody(new_floor: NewFloor) -> None:
    """R-035: not even the one that began it."""
    source = FakeSource("a")
    floor = new_floor({"a": source})
    floor.threads.held = True
    first, second = floor.request("a"), floor.request("a")

    first.cut_short()
    assert floor.models.status("a").queued_turns == 1
    floor.go_on()

    assert (where(first, second), source.loads) == (["cut short", "running"], 1)


def test_models_are_loaded_one_at_a_time(new_floor: NewFloor) -> None:
    """R-053, R-055: in order of arrival; the time of a load counts from its turn."""
    floor = new_floor({name: FakeSource(name) for name in "ab"})
    floor.threads.held = True
    requests = [floor.request(name) for name in "ab"]
    assert [source.name for source in floor.threads.reading] == ["a"]

    floor.run(2)
    floor.go_on()
    assert where(*requests) == ["running", "loading"]
    assert [source.name for source in floor.threads.reading] == ["b"]
    floor.run(3)
    floor.go_on()

    assert where(*requests) == ["running", "running"]
    assert [
        (each.model, each.started_ms - NOON_MS, each.ended_ms - NOON_MS) for each in floor.models.load_records
    ] == [
        ("a", 0, 2000),
        ("b", 2000, 5000),
    ]


def test_a_resident_model_is_not_concerned_by_the_load_of_another(new_floor: NewFloor) -> None:
    """R-036, R-047, D-29, G-010, G-029, G-030: its turns run, wait and are refused as ever."""
    floor = new_floor({"a": FakeSource("a"), "b": FakeSource("b")}, max_waiting=1)
    loaded(floor, "a")
    floor.threads.held = True
    cold = floor.request("b")

    turns = [floor.request("a") for _ in range(2)]
    with pytest.raises(QueueFullError):
        floor.request("a")

    assert where(cold, *turns) == ["loading", "running", "queued"]
    floor.go_on()
    assert where(cold, *turns) == ["running", "running", "queued"]


def test_nothing_is_cleared_while_a_load_waits_or_runs(new_floor: NewFloor) -> None:
    """R-051, G-027: also when it fails."""
    sources = {name: FakeSource(name) for name in "ab"}
    sources["b"].error = "no such file"
    floor = new_floor(dict(sources))
    floor.threads.held = True

    floor.request("a")
    floor.request("b")
    assert floor.idle.told == ["suspended", "suspended"]
    floor.go_on()
    assert floor.idle.told == ["suspended", "suspended", "resumed"]
    floor.go_on()

    assert floor.idle.told == ["suspended", "suspended", "resumed", "resumed"]


def test_names_of_the_same_source_are_one_model(new_floor: NewFloor) -> None:
    """R-059, R-060, R-061, R-077, G-025."""
    source, other = FakeSource("a"), FakeSource("b")
    floor = new_floor({"a": source, "alias": source, "b": other})

    running, queued = floor.request("a"), floor.request("alias")

    assert (where(running, queued), source.loads) == (["running", "queued"], 1)
    shown = [(each.name, each.state, each.instance_id, each.aliases) for each in floor.models.listed()]
    assert shown == [
        ("a", "resident", 1, ("alias",)),
        ("alias", "resident", 1, ("a",)),
        ("b", "declared", None, ()),
    ]
    assert [binding.engine for binding in floor.models.resident()] == [source.engine]


def test_who_waits_for_an_alias_is_charged_to_the_models_one_lane(new_floor: NewFloor) -> None:
    """R-036, R-037, R-043, G-018, G-019: the names have cold budgets of their own, the model has one."""
    source = FakeSource("a")
    floor = new_floor({"a": source, "alias": source}, max_waiting=1)
    floor.threads.held = True
    by_name = [floor.request("a") for _ in range(2)]
    by_alias = [floor.request("alias") for _ in range(2)]

    floor.go_on()

    assert where(*by_name, *by_alias) == ["running", "queued", "queue_full", "queue_full"]
    for name in ("a", "alias"):
        with pytest.raises(QueueFullError):
            floor.request(name)
    assert floor.models.resident()[0].lane.counts == LaneCounts(active=1, queued=1, reservations=0)


def test_who_yields_waits_for_the_load_and_then_for_everyone_else(new_floor: NewFloor) -> None:
    """It is never refused, cold or warm, and is no part of any budget while it waits."""
    floor = new_floor({"a": FakeSource("a")}, max_waiting=0)
    floor.threads.held = True
    yielding = [floor.request("a", yields=True) for _ in range(2)]
    first = floor.request("a")
    assert floor.models.status("a").queued_turns == 1

    floor.go_on()
    yielding.append(floor.request("a", yields=True))
    assert where(*yielding, first) == ["queued", "queued", "queued", "running"]
    first.release()

    assert where(*yielding, first) == ["running", "queued", "queued", "done"]


# ── unloads ──


def test_an_unloaded_model_is_freed_and_loaded_again_by_the_next_request(new_floor: NewFloor) -> None:
    """D-27, R-064: all its names are declared again; the object that comes back is another."""
    source = FakeSource("a", weight_bytes=60)
    floor = new_floor({"a": source, "alias": source}, budget_bytes=100)
    told: list[object] = []
    floor.models.give_up_first(lambda _: 0, told.append)
    loaded(floor, "a")

    admission = floor.begin(floor.models.unload("alias")).result()

    assert (admission.state, floor.models.status("a").state) == ("declared", "declared")
    assert (told, source.engine.closed, floor.models.memory.used.total()) == ([source.engine], 1, 0)
    again = floor.request("a")
    assert (again.where, again.admission.lease.instance_id, source.loads) == ("running", 2, 2)
    assert [engine.closed for engine in source.engines] == [1, 0]


def test_a_model_is_unloaded_when_its_turns_have_ended_and_not_before(new_floor: NewFloor) -> None:
    """R-065, R-066: the operator does not wait for them; what waits in the lane is told of the change."""
    source = FakeSource("a", weight_bytes=60)
    floor = new_floor({"a": source}, budget_bytes=100)
    loaded(floor, "a")
    running, queued = floor.request("a"), floor.request("a")

    assert floor.begin(floor.models.unload("a")).result().state == "declared"
    assert (where(running, queued), source.engine.closed) == (["running", "queued"], 0)
    running.release()

    assert where(running, queued) == ["done", "binding_changed"]
    assert (source.engine.closed, floor.models.memory.used.total()) == (1, 0)


def test_a_model_that_is_asked_for_while_it_is_being_unloaded_stays(new_floor: NewFloor) -> None:
    """R-065, G-031: the same object in the same lane; it is not closed when the old turn ends."""
    source = FakeSource("a")
    floor = new_floor({"a": source})
    loaded(floor, "a")
    running = floor.request("a")
    floor.begin(floor.models.unload("a")).result()

    late = floor.request("a")
    assert where(running, late) == ["running", "queued"]
    running.release()

    assert (where(running, late), late.admission.lease.instance_id) == (["done", "running"], 1)
    assert (source.loads, source.engine.closed) == (1, 0)
    late.release()
    assert (source.engine.closed, floor.models.status("a").state) == (0, "resident")


@pytest.mark.parametrize("leaves", ["at once", "while the engine is being closed"])
def test_an_operator_who_leaves_undoes_nothing(leaves: str, new_floor: NewFloor) -> None:
    """The memory of a model that goes is counted until it is gone, and not for ever."""
    source = FakeSource("a", weight_bytes=60)
    floor = new_floor({"a": source}, budget_bytes=100)
    loaded(floor, "a")
    floor.threads.held = True
    unloading = floor.begin(floor.models.unload("a"))
    if leaves == "at once":
        floor.threads.held = False
    unloading.cancel()
    assert (floor.models.memory.used["weights"], source.engine.closed) == (60, 0)

    floor.go_on()

    assert (floor.models.memory.used.total(), source.engine.closed) == (0, 1)
    assert floor.models.status("a").state == "declared"


def test_a_model_that_is_still_being_read_when_the_server_ends_is_closed(new_floor: NewFloor) -> None:
    """R-393: and those that are there; whoever waits for it is told."""
    sources = {name: FakeSource(name) for name in "ab"}
    floor = new_floor(dict(sources))
    loaded(floor, "a")
    floor.threads.held = True
    waiting = floor.request("b")

    floor.do(floor.models.close)
    assert sources["a"].engine.closed == 1
    floor.go_on()

    assert (sources["b"].engine.closed, waiting.where) == (1, "model_unavailable")


# ── swaps ──


def test_a_swap_leaves_no_moment_without_a_model(new_floor: NewFloor) -> None:
    """R-059, R-063, R-138, R-139, G-033, G-034: turns run on, new ones get the new one, queued ones fail."""
    old, new = FakeSource("a"), FakeSource("b")
    floor = new_floor({"a": old, "b": new})
    loaded(floor, "a")
    running, queued = floor.request("a"), floor.request("a")
    floor.threads.held = True

    swap = floor.begin(floor.models.swap("a", "b"))
    meanwhile = floor.request("a")
    assert (swap.is_done, floor.models.status("a").state) == (False, "resident")
    floor.go_on()
    after = floor.request("a")
    assert (swap.result().instance_id, swap.result().aliases) == (2, ("b",))
    running.release()

    assert where(running, queued, meanwhile, after) == [
        "done",
        "binding_changed",
        "binding_changed",
        "running",
    ]
    assert after.admission.lease.engine is new.engine
    floor.go_on()
    assert (old.engine.closed, new.engine.closed) == (1, 0)


def test_a_swap_to_what_cannot_be_loaded_changes_nothing(new_floor: NewFloor) -> None:
    """R-059."""
    old, new = FakeSource("a"), FakeSource("b")
    floor = new_floor({"a": old, "b": new})
    loaded(floor, "a")
    new.error = "no such file"

    with pytest.raises(EngineError, match="no such file"):
        floor.begin(floor.models.swap("a", "b")).result()

    assert [(each.name, each.state, each.instance_id) for each in floor.models.listed()] == [
        ("a", "resident", 1),
        ("b", "declared", None),
    ]
    turn = floor.request("a")
    assert (turn.where, turn.admission.lease.engine, old.engine.closed) == ("running", old.engine, 0)


def test_a_swap_keeps_a_model_that_has_another_name(new_floor: NewFloor) -> None:
    """R-059, R-063: and an alias of the new one is none of its old one's any more."""
    old, new = FakeSource("a"), FakeSource("b")
    floor = new_floor({"a": old, "alias": old, "b": new})
    loaded(floor, "a", "b")

    floor.begin(floor.models.swap("alias", "b")).result()

    assert [(each.name, each.instance_id, each.aliases) for each in floor.models.listed()] == [
        ("a", 1, ()),
        ("alias", 2, ("b",)),
        ("b", 2, ("alias",)),
    ]
    assert (old.engine.closed, new.engine.closed) == (0, 0)


def test_who_waits_for_a_model_whose_name_is_swapped_gets_the_new_one(new_floor: NewFloor) -> None:
    """R-044, G-015: what was loaded for the name meanwhile is of no use to anybody, and is freed."""
    old, new = FakeSource("a", weight_bytes=10), FakeSource("b", weight_bytes=20)
    floor = new_floor({"a": old, "b": new}, budget_bytes=100)
    loaded(floor, "b")
    floor.threads.held = True
    waiting = floor.request("a")

    floor.begin(floor.models.swap("a", "b")).result()
    floor.threads.held = False
    floor.go_on()

    assert (waiting.where, waiting.admission.lease.engine) == ("running", new.engine)
    assert (old.engine.closed, new.engine.closed) == (1, 0)
    assert floor.models.memory.used["weights"] == 20


def test_a_model_that_a_swap_is_about_to_use_is_not_freed(new_floor: NewFloor) -> None:
    """docs/decisions/0009: though its own name has come to mean another one while it was loaded."""
    sources = {name: FakeSource(name) for name in "abc"}
    floor = new_floor(dict(sources))
    loaded(floor, "a", "c")
    floor.threads.held = True
    swap = floor.begin(floor.models.swap("a", "b"))
    floor.begin(floor.models.swap("b", "c")).result()

    floor.go_on()

    assert (swap.result().state, sources["b"].engine.closed) == ("resident", 0)
    assert floor.models.engine("a") is sources["b"].engine

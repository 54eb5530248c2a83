"""Which object a name means, what keeps a binding, and which instance id the object has."""

import gc
import weakref

import pytest

from tests.fakes.engine import PuppetEngine
from turnlog.app.models.lane import Lane
from turnlog.app.models.registry import Binding, Lease, Registry
from turnlog.domain.errors import ModelNotFoundError
from turnlog.domain.ports import InferenceEngine

NOON_S, LATER_S = 1_000, 2_000


@pytest.fixture
def registry() -> Registry:
    return Registry(lambda engine: Lane(engine.info.concurrency, max_waiting=None))


def bound(registry: Registry, name: str, engine: InferenceEngine) -> Binding:
    """What the name means from now on."""
    return registry.bind(name, engine, now_s=NOON_S)


def gone(registry: Registry, name: str) -> None:
    """The name means nothing any more, as when its model was unloaded."""
    registry.unbind(name)


def wedged(registry: Registry, instance_id: int) -> None:
    """A write with the id has passed its hard limit; in the order of R-075."""
    registry.pin(instance_id)
    assert registry.retire(instance_id)
    registry.unpin(instance_id)


# ── names and objects ──


def test_each_model_object_has_one_binding_whatever_its_names(registry: Registry) -> None:
    """R-060, R-061, R-077, R-078, R-079: one lane and one id; ids count up from 1."""
    alpha, beta = PuppetEngine("alpha"), PuppetEngine("beta", concurrency=4)

    first, alias, other = (
        bound(registry, name, engine) for name, engine in [("a", alpha), ("alias", alpha), ("b", beta)]
    )

    assert (first is alias, first.lane is alias.lane) == (True, True)
    assert [
        (each.engine, each.instance_id, each.names, each.lane.capacity) for each in registry.bindings()
    ] == [
        (alpha, 1, {"a": NOON_S, "alias": NOON_S}, 1),
        (beta, 2, {"b": NOON_S}, 4),
    ]
    assert other is registry.find("b")


def test_binding_the_same_object_again_keeps_all_but_the_time(registry: Registry) -> None:
    """R-062."""
    engine = PuppetEngine("alpha")
    before = bound(registry, "a", engine)
    lane = before.lane

    after = registry.bind("a", engine, now_s=LATER_S)

    assert (after, after.lane, after.instance_id, after.names) == (before, lane, 1, {"a": LATER_S})


def test_a_name_that_comes_to_mean_another_object_leaves_the_old_one(registry: Registry) -> None:
    """R-063, R-064: the old object is gone with its last name, and gets a new id if it comes back."""
    alpha, beta = PuppetEngine("alpha"), PuppetEngine("beta")
    bound(registry, "a", alpha)
    bound(registry, "alias", alpha)

    bound(registry, "a", beta)
    assert [(each.engine, set(each.names)) for each in registry.bindings()] == [
        (alpha, {"alias"}),
        (beta, {"a"}),
    ]
    bound(registry, "alias", beta)

    assert [(each.engine, set(each.names)) for each in registry.bindings()] == [(beta, {"a", "alias"})]
    assert bound(registry, "again", alpha).instance_id == 3


def test_a_name_that_means_nothing_cannot_be_leased_or_unbound(registry: Registry) -> None:
    """R-058, R-071."""
    bound(registry, "a", PuppetEngine("alpha"))
    bound(registry, "b", PuppetEngine("beta"))

    assert (registry.find("c"), registry.unbind("c")) == (None, None)
    with pytest.raises(ModelNotFoundError, match=r"'c' does not exist. Served models: a, b$"):
        registry.lease("c")


# ── leases ──


def test_a_leased_model_that_is_bound_again_has_its_lane_and_id_still(registry: Registry) -> None:
    """R-065, R-066, G-031: so the next request waits behind the one that runs."""
    engine = PuppetEngine("alpha")
    before = bound(registry, "a", engine)
    lease = registry.lease("a")

    gone(registry, "a")
    after = bound(registry, "a", engine)
    lease.release()

    assert (after, registry.find("a"), after.instance_id, after.leases) == (before, before, 1, 0)


def test_the_last_lease_of_a_model_without_a_name_lets_it_go(registry: Registry) -> None:
    """R-064, R-065, R-066: and a second release does not count."""
    engine = PuppetEngine("alpha")
    binding = bound(registry, "a", engine)
    leases = [registry.lease("a") for _ in range(2)]
    gone(registry, "a")

    leases[0].release()
    leases[0].release()
    assert (binding.leases, binding.held) == (1, True)
    leases[1].release()

    assert (binding.leases, binding.held) == (0, False)
    assert bound(registry, "a", engine).instance_id == 2


def test_a_lease_is_of_the_object_whatever_its_name_means_later(registry: Registry) -> None:
    """R-066, R-068, R-138: it is released where it was taken, not where the name leads."""
    alpha, beta = PuppetEngine("alpha"), PuppetEngine("beta")
    old = bound(registry, "a", alpha)
    lease = registry.lease("a")
    assert lease.holds

    new = bound(registry, "a", beta)
    assert seen(lease) == ("a", alpha, 1, old.lane, False)
    lease.release()

    assert (old.leases, new.leases) == (0, 0)


def seen(lease: Lease) -> tuple[str, InferenceEngine, int, Lane, bool]:
    """What a request knows of its model."""
    return lease.name, lease.engine, lease.instance_id, lease.lane, lease.holds


def test_an_object_that_comes_back_after_a_tear_down_is_not_what_a_name_meant(registry: Registry) -> None:
    """R-138: the same object in another binding has another lane, so it does not count as the same."""
    engine = PuppetEngine("alpha")
    bound(registry, "a", engine)
    old = registry.lease("a")
    old.release()

    gone(registry, "a")
    bound(registry, "a", engine)

    assert (old.holds, registry.lease("a").instance_id) == (False, 2)


def test_who_waits_until_a_model_is_free_is_told_when_its_last_request_leaves(registry: Registry) -> None:
    """At once if none has it; never if a name means it again meanwhile, so that it is not closed in use."""
    engine = PuppetEngine("alpha")
    binding = bound(registry, "a", engine)
    told: list[str] = []
    registry.when_unleased(binding, lambda: told.append("at once"))
    leases = [registry.lease("a") for _ in range(2)]
    registry.when_unleased(binding, lambda: told.append("last"))

    leases[0].release()
    assert told == ["at once"]
    leases[1].release()
    registry.lease("a").release()
    assert told == ["at once", "last"]

    lease = registry.lease("a")
    gone(registry, "a")
    registry.when_unleased(binding, lambda: told.append("though it is in use again"))
    bound(registry, "a", engine)
    lease.release()
    assert told == ["at once", "last"]


def test_a_model_that_was_used_later_is_given_up_later(registry: Registry) -> None:
    """To be bound, leased and released are uses."""
    bindings = {name: bound(registry, name, PuppetEngine(name)) for name in "abcd"}

    early = registry.lease("c")
    registry.lease("b").release()
    registry.lease("a")
    early.release()

    assert sorted(bindings, key=lambda name: bindings[name].last_use) == ["d", "b", "a", "c"]


# ── the pins of writes ──


def test_a_write_under_way_keeps_the_id_after_the_lease(registry: Registry) -> None:
    """R-065, R-069, G-065, G-066: the same object bound again before the write lands has its id still."""
    engine = PuppetEngine("alpha")
    before = bound(registry, "a", engine)
    lease = registry.lease("a")
    registry.pin(lease.instance_id)
    lease.release()
    gone(registry, "a")

    after = bound(registry, "a", engine)
    registry.unpin(after.instance_id)

    assert (after, after.instance_id, after.pins) == (before, 1, 0)
    gone(registry, "a")
    assert bound(registry, "a", engine).instance_id == 2


def test_a_write_that_settles_while_a_turn_runs_does_not_take_the_lane_away(registry: Registry) -> None:
    """R-065, R-069: leases and pins are counted apart."""
    engine = PuppetEngine("alpha")
    before = bound(registry, "a", engine)
    lease = registry.lease("a")
    registry.pin(1)
    gone(registry, "a")

    registry.unpin(1)
    after = bound(registry, "a", engine)
    lease.release()

    assert (after, after.lane) == (before, lease.lane)


def test_counts_never_go_below_zero_and_what_is_gone_is_ignored(registry: Registry) -> None:
    """R-071, R-076."""
    binding = bound(registry, "a", PuppetEngine("alpha"))
    registry.unpin(1)
    registry.unpin(1)
    registry.pin(1)
    assert (binding.pins, binding.leases) == (1, 0)
    registry.unpin(1)
    gone(registry, "a")

    for late in (registry.pin, registry.unpin, registry.unretire):
        late(1)
        late(99)

    assert (registry.retire(1), registry.retire(99)) == (False, False)
    assert (binding.pins, registry.bindings()) == (0, [])


# ── tombstones ──


def test_a_wedged_write_hands_its_id_to_the_same_object_and_to_no_other(registry: Registry) -> None:
    """R-072, R-073, R-075, G-068, G-069."""
    engine, other = PuppetEngine("alpha"), PuppetEngine("alpha")
    bound(registry, "a", engine)
    wedged(registry, 1)
    gone(registry, "a")

    ids = [bound(registry, "a", each).instance_id for each in (other, engine)]

    assert ids == [2, 1]


def test_when_the_late_write_has_settled_the_next_tear_down_gives_a_fresh_id(registry: Registry) -> None:
    """R-072, G-070: not before that tear-down."""
    engine = PuppetEngine("alpha")
    bound(registry, "a", engine)
    wedged(registry, 1)
    gone(registry, "a")
    bound(registry, "a", engine)

    registry.unretire(1)
    assert bound(registry, "a", engine).instance_id == 1
    gone(registry, "a")

    assert bound(registry, "a", engine).instance_id == 2


def test_the_id_is_kept_until_the_last_of_several_wedged_writes_has_settled(registry: Registry) -> None:
    """R-072, G-071."""
    engine = PuppetEngine("alpha")
    bound(registry, "a", engine)
    for _ in range(2):
        wedged(registry, 1)

    registry.unretire(1)
    gone(registry, "a")
    assert bound(registry, "a", engine).instance_id == 1
    registry.unretire(1)
    gone(registry, "a")

    assert bound(registry, "a", engine).instance_id == 2


def test_thousands_of_wedged_writes_are_one_entry(registry: Registry) -> None:
    """R-074, G-072."""
    bound(registry, "a", PuppetEngine("alpha"))

    for _ in range(5_000):
        wedged(registry, 1)

    assert len(registry._retired_ids) == 1
    for _ in range(5_000):
        registry.unretire(1)
    assert len(registry._retired_ids) == 0


def test_a_wedged_write_keeps_no_model_in_memory(registry: Registry) -> None:
    """R-073: the admission goes with the object."""
    engine = PuppetEngine("alpha")
    bound(registry, "a", engine)
    wedged(registry, 1)
    gone(registry, "a")
    left = weakref.ref(engine)

    del engine
    gc.collect()

    assert (left(), len(registry._retired_ids)) == (None, 0)
    registry.unretire(1)

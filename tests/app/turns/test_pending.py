"""Writes that have not settled, and the markers of those that are past their hard limit."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from turnlog.app.turns.pending import SWEEP_VISITS, PendingWrites, Sizes

NOON_MS = 1_795_000_000_000
HOUR_MS = 3_600_000


def wedged(
    *response_ids: str, ttl_ms: float = 200, at_ms: int = NOON_MS, expiry_ms: float | None = None
) -> PendingWrites[str]:
    """A tracker in which these writes are past their hard limit."""
    pending: PendingWrites[str] = PendingWrites()
    for response_id in response_ids:
        wedge(pending, response_id, ttl_ms=ttl_ms, at_ms=at_ms, expiry_ms=expiry_ms)
    return pending


def wedge(
    pending: PendingWrites[str],
    response_id: str,
    *,
    ttl_ms: float = 200,
    at_ms: int = NOON_MS,
    expiry_ms: float | None = None,
) -> None:
    """Start a write and let it pass its hard limit."""
    pending.register(response_id, f"write of {response_id}", expiry_ms)
    assert pending.hard_time_out(response_id, now_ms=at_ms, ttl_ms=ttl_ms)


def test_a_write_can_be_found_as_soon_as_it_is_registered() -> None:
    """R-128."""
    pending: PendingWrites[str] = PendingWrites()

    pending.register("resp_1", "write", None)

    assert pending.in_flight("resp_1") == "write"
    assert "resp_1" in pending


def test_a_write_that_has_settled_leaves_nothing() -> None:
    """R-128, R-129."""
    pending: PendingWrites[str] = PendingWrites()
    pending.register("resp_1", "write", NOON_MS)

    pending.settle("resp_1", "write")

    assert pending.in_flight("resp_1") is None
    assert "resp_1" not in pending
    assert pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS) is None
    assert pending.sizes(now_ms=NOON_MS) == Sizes(0, 0, 0)


def test_a_write_that_settles_leaves_a_newer_one_of_its_response_alone() -> None:
    """R-128: the entry goes only if it is still the same write."""
    pending: PendingWrites[str] = PendingWrites()
    pending.register("resp_1", "first", None)
    pending.register("resp_1", "second", NOON_MS)

    pending.settle("resp_1", "first")

    assert pending.in_flight("resp_1") == "second"
    assert pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS) == NOON_MS


def test_an_expiry_is_kept_only_if_it_is_known() -> None:
    """R-129, R-135."""
    pending: PendingWrites[str] = PendingWrites()
    pending.register("resp_1", "write", NOON_MS)
    pending.register("resp_2", "write", None)

    assert pending.earliest_expiry_ms("resp_1", now_ms=0) == NOON_MS
    assert pending.earliest_expiry_ms("resp_2", now_ms=0) is None
    assert pending.sizes(now_ms=0) == Sizes(writes=2, markers=0, expiries=1)


def test_past_its_hard_limit_a_write_is_a_marker_and_nothing_else() -> None:
    """R-130, G-059."""
    pending: PendingWrites[str] = PendingWrites()
    pending.register("resp_1", "write", NOON_MS + HOUR_MS)

    assert pending.hard_time_out("resp_1", now_ms=NOON_MS, ttl_ms=200)

    assert pending.in_flight("resp_1") is None
    assert pending.sizes(now_ms=NOON_MS) == Sizes(writes=0, markers=1, expiries=0)


def test_a_write_concerns_its_owner_only_also_past_its_hard_limit() -> None:
    """D-18: whose it is was asked when it began, for its turn is gone by then."""
    owners = {"resp_a": "alice"}
    pending: PendingWrites[str] = PendingWrites(owners.get)
    for response_id in ("resp_a", "resp_b"):
        pending.register(response_id, "write", None)
    owners.clear()

    def concerned(response_id: str) -> list[str]:
        return [owner for owner in ("alice", "bob") if pending.concerns(response_id, owner)]

    assert (concerned("resp_a"), concerned("resp_b"), concerned("resp_c")) == (
        ["alice"],
        ["alice", "bob"],
        [],
    )
    pending.hard_time_out("resp_a", now_ms=NOON_MS, ttl_ms=HOUR_MS)
    assert concerned("resp_a") == ["alice"]
    pending.settle("resp_a", "write")
    assert concerned("resp_a") == []


def test_what_is_not_in_flight_gets_no_marker() -> None:
    """R-130."""
    pending: PendingWrites[str] = PendingWrites()

    assert not pending.hard_time_out("resp_1", now_ms=NOON_MS, ttl_ms=200)

    assert "resp_1" not in pending


def test_a_marker_goes_when_its_write_settles_at_last() -> None:
    """R-133, G-059."""
    pending = wedged("resp_1", "resp_2")

    pending.settle("resp_1", "write of resp_1")

    assert not pending.refresh_marker("resp_1", now_ms=NOON_MS)
    assert pending.refresh_marker("resp_2", now_ms=NOON_MS)
    assert pending.sizes(now_ms=NOON_MS) == Sizes(writes=0, markers=1, expiries=0)


def test_a_marker_lives_on_as_long_as_it_is_asked_for() -> None:
    """R-132, G-052: TTL 200 ms, asked for every 150 ms."""
    pending = wedged("resp_1", ttl_ms=200)

    assert [pending.refresh_marker("resp_1", now_ms=NOON_MS + at) for at in (150, 300, 450)] == [True] * 3
    assert not pending.refresh_marker("resp_1", now_ms=NOON_MS + 650)
    assert "resp_1" not in pending


def test_a_marker_never_outlives_what_it_is_for() -> None:
    """R-131, R-132, G-053, G-055: TTL 100 ms, the response expires after 250 ms."""
    pending = wedged("resp_1", ttl_ms=100, expiry_ms=NOON_MS + 250)

    answers = [pending.refresh_marker("resp_1", now_ms=NOON_MS + at) for at in (50, 140, 260)]

    assert answers == [True, True, False]


def test_a_marker_is_dead_at_its_very_cap() -> None:
    """R-131: live while now < cap."""
    pending = wedged("resp_1", ttl_ms=HOUR_MS, expiry_ms=NOON_MS + 250)

    assert pending.refresh_marker("resp_1", now_ms=NOON_MS + 249)
    assert not pending.refresh_marker("resp_1", now_ms=NOON_MS + 250)


def test_the_first_ancestor_to_expire_ends_the_marker() -> None:
    """R-136, R-352, G-054: the tracker is told the earliest expiry of response and chain."""
    parent_ms, own_ms = NOON_MS + 100, NOON_MS + HOUR_MS
    pending = wedged("resp_child", ttl_ms=HOUR_MS, expiry_ms=min(parent_ms, own_ms))

    assert pending.refresh_marker("resp_child", now_ms=parent_ms - 1)
    assert not pending.refresh_marker("resp_child", now_ms=parent_ms)


def test_no_marker_survives_its_time() -> None:
    """R-134, R-137, G-056."""
    names = [f"resp_{number}" for number in range(100)]
    read, swept = wedged(*names), wedged(*names)

    assert not any(read.refresh_marker(name, now_ms=NOON_MS + 200) for name in names)
    assert swept.sizes(now_ms=NOON_MS + 200) == Sizes(0, 0, 0)
    assert not any(name in read or name in swept for name in names)


def left_of(pending: PendingWrites[str], prefix: str, count: int) -> int:
    """How many of the markers `prefix0`, `prefix1` … the tracker still holds, dead or alive."""
    return sum(f"{prefix}{number}" in pending for number in range(count))


def test_each_marking_looks_at_so_many_of_the_oldest_markers() -> None:
    """R-134, G-057: 200 dead ones are gone after four."""
    pending = wedged(*(f"old_{number}" for number in range(200)), ttl_ms=100)
    left = []

    for number in range(4):
        wedge(pending, f"new_{number}", at_ms=NOON_MS + 100)
        left.append(left_of(pending, "old_", 200))

    assert left == [136, 72, 8, 0]
    assert left_of(pending, "new_", 4) == 4


def test_markers_that_are_asked_for_do_not_hide_the_dead_behind_them() -> None:
    """R-132, R-134, G-058: being asked for moves a marker to the young end."""
    pending = wedged(*(f"kept_{number}" for number in range(SWEEP_VISITS)), ttl_ms=100)
    for number in range(SWEEP_VISITS):
        wedge(pending, f"dead_{number}", ttl_ms=10)

    later_ms = NOON_MS + 50
    assert all(pending.refresh_marker(f"kept_{number}", now_ms=later_ms) for number in range(SWEEP_VISITS))
    wedge(pending, "new", at_ms=later_ms)

    assert left_of(pending, "dead_", SWEEP_VISITS) == 0
    assert left_of(pending, "kept_", SWEEP_VISITS) == SWEEP_VISITS


def test_the_sweep_is_limited_in_visits_not_in_what_it_drops() -> None:
    """R-134: live markers at the old end count."""
    pending = wedged(*(f"live_{number}" for number in range(SWEEP_VISITS - 1)), ttl_ms=HOUR_MS)
    for number in range(10):
        wedge(pending, f"dead_{number}", ttl_ms=10)

    wedge(pending, "new", at_ms=NOON_MS + 10)

    assert left_of(pending, "dead_", 10) == 9
    assert left_of(pending, "live_", SWEEP_VISITS - 1) == SWEEP_VISITS - 1


def test_who_waits_still_learns_the_expiry_when_the_hard_limit_passes_meanwhile() -> None:
    """R-135, G-060."""
    pending: PendingWrites[str] = PendingWrites()
    pending.register("resp_1", "write", NOON_MS + HOUR_MS)
    before = pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS)

    pending.hard_time_out("resp_1", now_ms=NOON_MS, ttl_ms=200)

    assert pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS) == before == NOON_MS + HOUR_MS


@pytest.mark.parametrize(("ttl_ms", "expiry_ms"), [(0, None), (HOUR_MS, NOON_MS), (HOUR_MS, NOON_MS - 1)])
def test_a_marker_that_is_dead_counts_as_expired(ttl_ms: float, expiry_ms: float | None) -> None:
    """R-135, R-136, G-061."""
    pending = wedged("resp_1", ttl_ms=ttl_ms, expiry_ms=expiry_ms)

    assert pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS) == 0
    assert not pending.refresh_marker("resp_1", now_ms=NOON_MS)


def test_reading_the_expiry_does_not_keep_a_marker_alive() -> None:
    """R-135: this read changes nothing."""
    pending = wedged("resp_1", ttl_ms=200, expiry_ms=NOON_MS + HOUR_MS)

    assert pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS + 199) == NOON_MS + HOUR_MS
    assert pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS + 200) == 0
    assert "resp_1" in pending
    assert not pending.refresh_marker("resp_1", now_ms=NOON_MS + 200)


def test_a_marker_whose_expiry_is_unknown_has_no_cap() -> None:
    """R-136."""
    pending = wedged("resp_1")

    assert pending.earliest_expiry_ms("resp_1", now_ms=NOON_MS) == math.inf


# ── against the rules, told without order and sweep ───────────────────────────────────────────────

IDS = st.integers(0, 5).map("resp_{}".format)
MOMENTS = st.integers(0, 50)


@dataclass
class Known:
    """All that the rules say of one response: its write or, when that is None, its marker."""

    write: str | None
    expiry_ms: float | None
    ttl_ms: float = 0
    slides_to_ms: float = 0

    @property
    def cap_ms(self) -> float:
        """R-136."""
        return math.inf if self.expiry_ms is None else self.expiry_ms

    def slide(self, now_ms: int) -> None:
        """R-132."""
        self.slides_to_ms = min(now_ms + self.ttl_ms, self.cap_ms)

    def marked(self, now_ms: int) -> bool:
        """R-131."""
        return self.write is None and now_ms < min(self.slides_to_ms, self.cap_ms)


class Tracker(RuleBasedStateMachine):
    """R-128 … R-136: order and sweep change what is held, never what is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: PendingWrites[str] = PendingWrites()
        self.model: dict[str, Known] = {}
        self.now_ms = 0

    @rule(pause_ms=MOMENTS)
    def wait(self, pause_ms: int) -> None:
        """Time passes."""
        self.now_ms += pause_ms

    @rule(name=IDS, expiry_ms=st.none() | st.integers(0, 200))
    def register(self, name: str, expiry_ms: int | None) -> None:
        """A write starts; an id is used once."""
        if name not in self.model:
            self.model[name] = Known(f"write of {name}", expiry_ms)
            self.pending.register(name, str(self.model[name].write), expiry_ms)

    @rule(name=IDS)
    def settle(self, name: str) -> None:
        """A write lands or fails, in time or late."""
        known = self.model.pop(name, None)
        self.pending.settle(name, known.write if known and known.write else "a late write")

    @rule(name=IDS, ttl_ms=MOMENTS)
    def hard_time_out(self, name: str, ttl_ms: int) -> None:
        """A write takes too long."""
        known = self.model.get(name)
        wedged = known is not None and known.write is not None
        assert self.pending.hard_time_out(name, now_ms=self.now_ms, ttl_ms=ttl_ms) == wedged
        if known and wedged:
            known.write, known.ttl_ms = None, ttl_ms
            known.slide(self.now_ms)

    @rule(name=IDS)
    def ask(self, name: str) -> None:
        """Somebody wants to continue the response."""
        known = self.model.get(name)
        marked = known is not None and known.marked(self.now_ms)
        assert self.pending.refresh_marker(name, now_ms=self.now_ms) == marked
        if known and marked:
            known.slide(self.now_ms)

    @invariant()
    def answers_as_the_rules_say(self) -> None:
        """R-135."""
        for name, known in self.model.items():
            earliest_ms = self.pending.earliest_expiry_ms(name, now_ms=self.now_ms)
            assert self.pending.in_flight(name) == known.write
            if known.write:
                assert earliest_ms == known.expiry_ms
            elif known.marked(self.now_ms):
                assert earliest_ms == known.cap_ms
            else:
                assert earliest_ms in (0, None)  # expired while it is held, unknown once it was swept


TestTracker = Tracker.TestCase


@given(st.lists(st.tuples(MOMENTS, MOMENTS), max_size=200))
def test_what_is_held_does_not_outgrow_what_lives(markings: list[tuple[int, int]]) -> None:
    """R-134, G-057: markings sweep faster than they add."""
    pending: PendingWrites[str] = PendingWrites()
    now_ms = 0
    for number, (pause_ms, ttl_ms) in enumerate(markings):
        now_ms += pause_ms
        wedge(pending, f"resp_{number}", at_ms=now_ms, ttl_ms=ttl_ms)

    end_ms = now_ms + 51
    for number in range(len(markings) // (SWEEP_VISITS - 1) + 1):
        wedge(pending, f"last_{number}", at_ms=end_ms, ttl_ms=1)

    assert left_of(pending, "resp_", len(markings)) == 0

"""The lane of one model: one unit of one budget for each request, whatever it waits for."""

from functools import partial

import pytest

from tests.app.models.acquired import Entered
from turnlog.app.models.lane import Lane, LaneCounts, YieldingAdmission
from turnlog.domain.errors import QueueFullError


def test_a_limit_of_n_admits_one_runner_and_n_waiters(acquired: Entered) -> None:
    """R-036, R-037, R-038, R-041, R-080, G-008: the refusal changes nothing, and says what is stats."""
    lane = Lane(capacity=1, max_waiting=2)
    for name in "abc":
        lane.slot(None, partial(acquired, name))

    with pytest.raises(QueueFullError) as refusal:
        lane.reservation()

    assert lane.counts == LaneCounts(active=1, queued=2, reservations=0)
    assert acquired.names == ["a"]
    assert refusal.value.message == (
        "Model queue full: 3 running or queued and 0 admitted, with a limit of 2 waiting. Retry after 10s."
    )


def test_two_of_one_tick_are_admitted_to_an_idle_lane_and_the_third_is_not(acquired: Entered) -> None:
    """G-022, R-037, R-080: who finds the lane idle runs, and is no waiter of its own burst."""
    lane = Lane(capacity=1, max_waiting=1)

    reservations = [lane.reservation(), lane.reservation()]
    with pytest.raises(QueueFullError):
        lane.reservation()
    for name, reservation in zip("ab", reservations, strict=True):
        lane.slot(reservation, partial(acquired, name))

    assert (acquired.names, lane.counts) == (["a"], LaneCounts(active=1, queued=1, reservations=0))


@pytest.mark.parametrize("running", [0, 1])
def test_who_has_no_permit_is_refused_when_the_budget_is_lent_out(running: int, acquired: Entered) -> None:
    """G-018, G-019, R-036, R-037, R-085: also from the slot of an idle lane."""
    lane = Lane(capacity=1, max_waiting=1)
    for _ in range(running):
        lane.slot(None, lambda: acquired("runner"))
    reservations = [lane.reservation() for _ in range(2 - running)]

    with pytest.raises(QueueFullError):
        lane.slot(None, lambda: acquired("too many"))

    assert lane.counts == LaneCounts(active=running, queued=0, reservations=len(reservations))
    assert acquired.names == ["runner"] * running


def test_a_request_is_one_unit_from_its_permit_to_its_end(acquired: Entered) -> None:
    """R-034, R-036: the reservation becomes the slot in the same step."""
    lane = Lane(capacity=1, max_waiting=1)
    first, second = lane.reservation(), lane.reservation()
    told = [lane.counts]

    running = lane.slot(first, lambda: acquired("first"))
    told.append(lane.counts)
    waiting = lane.slot(second, lambda: acquired("second"))
    told.append(lane.counts)
    running.release()
    told.append(lane.counts)
    waiting.release()
    told.append(lane.counts)

    assert told == [
        LaneCounts(active=0, queued=0, reservations=2),
        LaneCounts(active=1, queued=0, reservations=1),
        LaneCounts(active=1, queued=1, reservations=0),
        LaneCounts(active=1, queued=0, reservations=0),
        LaneCounts(active=0, queued=0, reservations=0),
    ]


def test_a_permit_can_be_given_back_at_any_time(acquired: Entered) -> None:
    """R-035, R-390: twice is once, and after it has become a slot it is nothing."""
    lane = Lane(capacity=1, max_waiting=1)
    given_back, used = lane.reservation(), lane.reservation()

    given_back.release()
    given_back.release()
    lane.slot(used, lambda: acquired("used"))
    used.release()

    assert (lane.counts, acquired.names) == (LaneCounts(active=1, queued=0, reservations=0), ["used"])


def test_a_permit_is_good_for_one_place_only(acquired: Entered) -> None:
    """R-034, R-039."""
    lane = Lane(capacity=1, max_waiting=1)
    reservation = lane.reservation()
    lane.slot(reservation, lambda: acquired("first"))
    lane.reservation()

    with pytest.raises(QueueFullError):
        lane.slot(reservation, lambda: acquired("second"))

    assert (lane.counts, acquired.names) == (LaneCounts(active=1, queued=0, reservations=1), ["first"])


def test_a_permit_of_another_lane_is_charged_like_none_and_stays_its_owners(acquired: Entered) -> None:
    """R-039."""
    lane, other = Lane(capacity=1, max_waiting=1), Lane(capacity=1, max_waiting=1)
    foreign = other.reservation()

    lane.slot(foreign, lambda: acquired("first"))
    lane.slot(foreign, lambda: acquired("second"))
    with pytest.raises(QueueFullError):
        lane.slot(foreign, lambda: acquired("third"))

    assert (lane.counts, other.counts) == (LaneCounts(1, 1, 0), LaneCounts(0, 0, 1))
    assert acquired.names == ["first"]


def test_a_permit_is_transferred_by_giving_it_back_first() -> None:
    """R-044: it stays given back if the other lane has no room; to its own lane it stays as it is."""
    lane, other = Lane(capacity=1, max_waiting=1), Lane(capacity=1, max_waiting=1)
    reservation = lane.reservation()
    assert reservation.transfer(lane) is reservation

    moved = reservation.transfer(other)
    other.reservation()
    assert (moved.lane, lane.counts, other.counts) == (other, LaneCounts(0, 0, 0), LaneCounts(0, 0, 2))

    late = lane.reservation()
    with pytest.raises(QueueFullError):
        late.transfer(other)
    assert (lane.counts, other.counts) == (LaneCounts(0, 0, 0), LaneCounts(0, 0, 2))


def test_as_many_run_at_once_as_the_engine_runs_and_the_others_in_order_of_arrival(acquired: Entered) -> None:
    """R-036, R-078, R-079, R-080, R-081, G-030."""
    lane = Lane(capacity=2, max_waiting=3)
    slots = [lane.slot(None, partial(acquired, name)) for name in "abcde"]
    with pytest.raises(QueueFullError):
        lane.slot(None, lambda: acquired("f"))
    assert (acquired.names, lane.counts) == (["a", "b"], LaneCounts(active=2, queued=3, reservations=0))

    slots[1].release()
    slots[0].release()
    slots[0].release()

    assert (acquired.names, lane.counts) == (
        ["a", "b", "c", "d"],
        LaneCounts(active=2, queued=1, reservations=0),
    )


def test_who_leaves_the_queue_frees_its_place_at_once(acquired: Entered) -> None:
    """D-26, R-374: its unit too, and it is not let in later."""
    lane = Lane(capacity=1, max_waiting=2)
    running = lane.slot(None, lambda: acquired("running"))
    left = lane.slot(None, lambda: acquired("left"))
    lane.slot(None, lambda: acquired("behind"))

    left.release()
    left.release()
    lane.reservation()
    running.release()

    assert (acquired.names, lane.counts) == (["running", "behind"], LaneCounts(1, 0, 1))


def test_without_a_limit_nobody_is_refused(acquired: Entered) -> None:
    """R-036, R-040, G-023."""
    lane = Lane(capacity=1, max_waiting=None)

    for _ in range(500):
        lane.reservation()
        lane.slot(None, lambda: acquired("in"))

    assert (lane.counts, acquired.names) == (LaneCounts(active=1, queued=499, reservations=500), ["in"])


# ── requests that let all others go first ──


def test_who_yields_is_never_refused_and_is_no_part_of_the_budget_while_it_waits(acquired: Entered) -> None:
    lane = Lane(capacity=1, max_waiting=1)
    lane.slot(None, lambda: acquired("running"))
    lane.slot(None, lambda: acquired("queued"))

    waiting = [lane.slot(lane.yielding_reservation(), lambda: acquired("yielding")) for _ in range(10)]

    assert (lane.counts, acquired.names) == (LaneCounts(active=1, queued=1, reservations=0), ["running"])
    for slot in waiting:
        slot.release()
    assert lane.counts == LaneCounts(active=1, queued=1, reservations=0)


def test_who_yields_takes_a_seat_when_nobody_else_wants_it(acquired: Entered) -> None:
    """Those who came later go first; among themselves they keep the order of arrival."""
    lane = Lane(capacity=1, max_waiting=3)
    slots = {"running": lane.slot(None, lambda: acquired("running"))}
    for name in ("yielding", "yielding later"):
        slots[name] = lane.slot(
            lane.yielding_reservation(),
            partial(acquired, name),
        )
    slots["late"] = lane.slot(None, lambda: acquired("late"))

    for name in ("running", "late", "yielding"):
        slots[name].release()

    assert acquired.names == ["running", "late", "yielding", "yielding later"]
    assert lane.counts == LaneCounts(active=1, queued=0, reservations=0)


def test_who_yields_takes_no_seat_that_permits_are_lent_out_for(acquired: Entered) -> None:
    """R-036: the budget holds for them too; a reservation that is given back lets them in."""
    lane = Lane(capacity=1, max_waiting=1)
    reservations = [lane.reservation(), lane.reservation()]
    lane.slot(lane.yielding_reservation(), lambda: acquired("yielding"))
    assert (acquired.names, lane.counts) == ([], LaneCounts(active=0, queued=0, reservations=2))

    reservations[0].release()

    assert (acquired.names, lane.counts) == (["yielding"], LaneCounts(active=1, queued=0, reservations=1))


def test_a_yielding_request_that_leaves_is_not_let_in_and_frees_its_seat_if_it_ran(acquired: Entered) -> None:
    lane = Lane(capacity=1, max_waiting=0)
    running = lane.slot(lane.yielding_reservation(), lambda: acquired("first"))
    left = lane.slot(lane.yielding_reservation(), lambda: acquired("left"))
    lane.slot(lane.yielding_reservation(), lambda: acquired("behind"))

    left.release()
    running.release()

    assert (acquired.names, lane.counts) == (
        ["first", "behind"],
        LaneCounts(active=1, queued=0, reservations=0),
    )


def test_a_yielding_request_yields_in_whatever_lane_it_comes_to(acquired: Entered) -> None:
    """R-044: also one whose model was not there yet, and one whose name came to mean another model."""
    cold = YieldingAdmission()
    lane, other = Lane(capacity=1, max_waiting=0), Lane(capacity=1, max_waiting=0)
    lane.slot(None, lambda: acquired("running"))
    other.slot(None, lambda: acquired("running there"))

    reservation = cold.transfer(lane)
    moved = reservation.transfer(other)
    cold.release()
    reservation.release()
    moved.release()
    other.slot(moved, lambda: acquired("yielding"))

    assert (reservation.yields, reservation.lane, moved.yields, moved.lane) == (True, lane, True, other)
    assert (lane.counts, other.counts) == (LaneCounts(1, 0, 0), LaneCounts(1, 0, 0))
    assert acquired.names == ["running", "running there"]


def test_a_yielding_permit_of_another_lane_is_charged_like_none(acquired: Entered) -> None:
    """R-039."""
    lane, other = Lane(capacity=1, max_waiting=0), Lane(capacity=1, max_waiting=0)
    lane.slot(other.yielding_reservation(), lambda: acquired("first"))

    with pytest.raises(QueueFullError):
        lane.slot(other.yielding_reservation(), lambda: acquired("second"))

    assert (acquired.names, lane.counts) == (["first"], LaneCounts(active=1, queued=0, reservations=0))

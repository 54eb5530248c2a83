"""The lane of one model: one unit of one budget for each request, whatever it waits for."""

from functools import partial

import pytest

from tests.app.models.entered import Entered
from turnlog.app.models.lane import Lane, LaneCounts, Yielding
from turnlog.domain.errors import QueueFullError


def test_a_limit_of_n_admits_one_runner_and_n_waiters(entered: Entered) -> None:
    """R-036, R-037, R-038, R-041, R-080, G-008: the refusal changes nothing, and says what is spent."""
    lane = Lane(capacity=1, max_waiting=2)
    for name in "abc":
        lane.place(None, partial(entered, name))

    with pytest.raises(QueueFullError) as refusal:
        lane.permit()

    assert lane.counts == LaneCounts(active=1, queued=2, permits=0)
    assert entered.names == ["a"]
    assert refusal.value.message == (
        "Model queue full: 3 running or queued and 0 admitted, with a limit of 2 waiting. Retry after 10s."
    )


def test_two_of_one_tick_are_admitted_to_an_idle_lane_and_the_third_is_not(entered: Entered) -> None:
    """G-022, R-037, R-080: who finds the lane idle runs, and is no waiter of its own burst."""
    lane = Lane(capacity=1, max_waiting=1)

    permits = [lane.permit(), lane.permit()]
    with pytest.raises(QueueFullError):
        lane.permit()
    for name, permit in zip("ab", permits, strict=True):
        lane.place(permit, partial(entered, name))

    assert (entered.names, lane.counts) == (["a"], LaneCounts(active=1, queued=1, permits=0))


@pytest.mark.parametrize("running", [0, 1])
def test_who_has_no_permit_is_refused_when_the_budget_is_lent_out(running: int, entered: Entered) -> None:
    """G-018, G-019, R-036, R-037, R-085: also from the seat of an idle lane."""
    lane = Lane(capacity=1, max_waiting=1)
    for _ in range(running):
        lane.place(None, lambda: entered("runner"))
    permits = [lane.permit() for _ in range(2 - running)]

    with pytest.raises(QueueFullError):
        lane.place(None, lambda: entered("too many"))

    assert lane.counts == LaneCounts(active=running, queued=0, permits=len(permits))
    assert entered.names == ["runner"] * running


def test_a_request_is_one_unit_from_its_permit_to_its_end(entered: Entered) -> None:
    """R-034, R-036: the permit becomes the place in the same step."""
    lane = Lane(capacity=1, max_waiting=1)
    first, second = lane.permit(), lane.permit()
    told = [lane.counts]

    running = lane.place(first, lambda: entered("first"))
    told.append(lane.counts)
    waiting = lane.place(second, lambda: entered("second"))
    told.append(lane.counts)
    running.leave()
    told.append(lane.counts)
    waiting.leave()
    told.append(lane.counts)

    assert told == [
        LaneCounts(active=0, queued=0, permits=2),
        LaneCounts(active=1, queued=0, permits=1),
        LaneCounts(active=1, queued=1, permits=0),
        LaneCounts(active=1, queued=0, permits=0),
        LaneCounts(active=0, queued=0, permits=0),
    ]


def test_a_permit_can_be_given_back_at_any_time(entered: Entered) -> None:
    """R-035, R-390: twice is once, and after it has become a place it is nothing."""
    lane = Lane(capacity=1, max_waiting=1)
    given_back, used = lane.permit(), lane.permit()

    given_back.release()
    given_back.release()
    lane.place(used, lambda: entered("used"))
    used.release()

    assert (lane.counts, entered.names) == (LaneCounts(active=1, queued=0, permits=0), ["used"])


def test_a_permit_is_good_for_one_place_only(entered: Entered) -> None:
    """R-034, R-039."""
    lane = Lane(capacity=1, max_waiting=1)
    permit = lane.permit()
    lane.place(permit, lambda: entered("first"))
    lane.permit()

    with pytest.raises(QueueFullError):
        lane.place(permit, lambda: entered("second"))

    assert (lane.counts, entered.names) == (LaneCounts(active=1, queued=0, permits=1), ["first"])


def test_a_permit_of_another_lane_is_charged_like_none_and_stays_its_owners(entered: Entered) -> None:
    """R-039."""
    lane, other = Lane(capacity=1, max_waiting=1), Lane(capacity=1, max_waiting=1)
    foreign = other.permit()

    lane.place(foreign, lambda: entered("first"))
    lane.place(foreign, lambda: entered("second"))
    with pytest.raises(QueueFullError):
        lane.place(foreign, lambda: entered("third"))

    assert (lane.counts, other.counts) == (LaneCounts(1, 1, 0), LaneCounts(0, 0, 1))
    assert entered.names == ["first"]


def test_a_permit_is_transferred_by_giving_it_back_first() -> None:
    """R-044: it stays given back if the other lane has no room; to its own lane it stays as it is."""
    lane, other = Lane(capacity=1, max_waiting=1), Lane(capacity=1, max_waiting=1)
    permit = lane.permit()
    assert permit.transfer(lane) is permit

    moved = permit.transfer(other)
    other.permit()
    assert (moved.lane, lane.counts, other.counts) == (other, LaneCounts(0, 0, 0), LaneCounts(0, 0, 2))

    late = lane.permit()
    with pytest.raises(QueueFullError):
        late.transfer(other)
    assert (lane.counts, other.counts) == (LaneCounts(0, 0, 0), LaneCounts(0, 0, 2))


def test_as_many_run_at_once_as_the_engine_runs_and_the_others_in_order_of_arrival(entered: Entered) -> None:
    """R-036, R-078, R-079, R-080, R-081, G-030."""
    lane = Lane(capacity=2, max_waiting=3)
    places = [lane.place(None, partial(entered, name)) for name in "abcde"]
    with pytest.raises(QueueFullError):
        lane.place(None, lambda: entered("f"))
    assert (entered.names, lane.counts) == (["a", "b"], LaneCounts(active=2, queued=3, permits=0))

    places[1].leave()
    places[0].leave()
    places[0].leave()

    assert (entered.names, lane.counts) == (["a", "b", "c", "d"], LaneCounts(active=2, queued=1, permits=0))


def test_who_leaves_the_queue_frees_its_place_at_once(entered: Entered) -> None:
    """D-26, R-374: its unit too, and it is not let in later."""
    lane = Lane(capacity=1, max_waiting=2)
    running = lane.place(None, lambda: entered("running"))
    left = lane.place(None, lambda: entered("left"))
    lane.place(None, lambda: entered("behind"))

    left.leave()
    left.leave()
    lane.permit()
    running.leave()

    assert (entered.names, lane.counts) == (["running", "behind"], LaneCounts(1, 0, 1))


def test_without_a_limit_nobody_is_refused(entered: Entered) -> None:
    """R-036, R-040, G-023."""
    lane = Lane(capacity=1, max_waiting=None)

    for _ in range(500):
        lane.permit()
        lane.place(None, lambda: entered("in"))

    assert (lane.counts, entered.names) == (LaneCounts(active=1, queued=499, permits=500), ["in"])


# ── requests that let all others go first ──


def test_who_yields_is_never_refused_and_is_no_part_of_the_budget_while_it_waits(entered: Entered) -> None:
    lane = Lane(capacity=1, max_waiting=1)
    lane.place(None, lambda: entered("running"))
    lane.place(None, lambda: entered("queued"))

    waiting = [lane.place(lane.yielding_permit(), lambda: entered("yielding")) for _ in range(10)]

    assert (lane.counts, entered.names) == (LaneCounts(active=1, queued=1, permits=0), ["running"])
    for place in waiting:
        place.leave()
    assert lane.counts == LaneCounts(active=1, queued=1, permits=0)


def test_who_yields_takes_a_seat_when_nobody_else_wants_it(entered: Entered) -> None:
    """Those who came later go first; among themselves they keep the order of arrival."""
    lane = Lane(capacity=1, max_waiting=3)
    places = {"running": lane.place(None, lambda: entered("running"))}
    for name in ("yielding", "yielding later"):
        places[name] = lane.place(
            lane.yielding_permit(),
            partial(entered, name),
        )
    places["late"] = lane.place(None, lambda: entered("late"))

    for name in ("running", "late", "yielding"):
        places[name].leave()

    assert entered.names == ["running", "late", "yielding", "yielding later"]
    assert lane.counts == LaneCounts(active=1, queued=0, permits=0)


def test_who_yields_takes_no_seat_that_permits_are_lent_out_for(entered: Entered) -> None:
    """R-036: the budget holds for them too; a permit that is given back lets them in."""
    lane = Lane(capacity=1, max_waiting=1)
    permits = [lane.permit(), lane.permit()]
    lane.place(lane.yielding_permit(), lambda: entered("yielding"))
    assert (entered.names, lane.counts) == ([], LaneCounts(active=0, queued=0, permits=2))

    permits[0].release()

    assert (entered.names, lane.counts) == (["yielding"], LaneCounts(active=1, queued=0, permits=1))


def test_a_yielding_request_that_leaves_is_not_let_in_and_frees_its_seat_if_it_ran(entered: Entered) -> None:
    lane = Lane(capacity=1, max_waiting=0)
    running = lane.place(lane.yielding_permit(), lambda: entered("first"))
    left = lane.place(lane.yielding_permit(), lambda: entered("left"))
    lane.place(lane.yielding_permit(), lambda: entered("behind"))

    left.leave()
    running.leave()

    assert (entered.names, lane.counts) == (["first", "behind"], LaneCounts(active=1, queued=0, permits=0))


def test_a_yielding_request_yields_in_whatever_lane_it_comes_to(entered: Entered) -> None:
    """R-044: also one whose model was not there yet, and one whose name came to mean another model."""
    cold = Yielding()
    lane, other = Lane(capacity=1, max_waiting=0), Lane(capacity=1, max_waiting=0)
    lane.place(None, lambda: entered("running"))
    other.place(None, lambda: entered("running there"))

    permit = cold.transfer(lane)
    moved = permit.transfer(other)
    cold.release()
    permit.release()
    moved.release()
    other.place(moved, lambda: entered("yielding"))

    assert (permit.yields, permit.lane, moved.yields, moved.lane) == (True, lane, True, other)
    assert (lane.counts, other.counts) == (LaneCounts(1, 0, 0), LaneCounts(1, 0, 0))
    assert entered.names == ["running", "running there"]


def test_a_yielding_permit_of_another_lane_is_charged_like_none(entered: Entered) -> None:
    """R-039."""
    lane, other = Lane(capacity=1, max_waiting=0), Lane(capacity=1, max_waiting=0)
    lane.place(other.yielding_permit(), lambda: entered("first"))

    with pytest.raises(QueueFullError):
        lane.place(other.yielding_permit(), lambda: entered("second"))

    assert (entered.names, lane.counts) == (["first"], LaneCounts(active=1, queued=0, permits=0))

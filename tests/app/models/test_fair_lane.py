"""How owners share the lane of a model: places, waiting room and memory (decision 20)."""

from functools import partial

import pytest

from tests.app.models.acquired import Entered
from turnlog.app.models.admission import ColdAdmissions
from turnlog.app.models.backlog import Backlog
from turnlog.app.models.lane import Lane, Sharing
from turnlog.domain.errors import BacklogFullError, OwnersShareError

SHARED = Sharing(is_shared=lambda: True)


def shared_lane(capacity: int, max_waiting: int | None = None) -> Lane:
    """A lane of a server whose keys are of several owners."""
    return Lane(capacity, max_waiting, sharing=SHARED)


def test_owners_take_turns_and_each_is_served_in_order_of_arrival(acquired: Entered) -> None:
    """T2-20: a line of one owner's turns holds up nobody else's."""
    lane = shared_lane(1)
    slots = {
        name: lane.slot(lane.reservation(name[0]), partial(acquired, name))
        for name in ("a1", "a2", "a3", "b1", "b2", "c1")
    }

    for name in ("a1", "a2", "b1", "c1", "a3"):
        slots[name].release()

    assert acquired.names == ["a1", "a2", "b1", "c1", "a3", "b2"]


def test_yielding_turns_take_turns_by_owner_too(acquired: Entered) -> None:
    """D-40: background turns and bulk replays wait behind all others, and share what is left alike."""
    lane = shared_lane(1)
    running = lane.slot(lane.reservation("a"), lambda: acquired("running"))
    slots = {
        name: lane.slot(lane.yielding_reservation(name[0]), partial(acquired, name))
        for name in ("a1", "a2", "b1")
    }

    running.release()
    slots["a1"].release()
    slots["b1"].release()

    assert acquired.names == ["running", "a1", "b1", "a2"]


@pytest.mark.parametrize(("capacity", "most"), [(1, 1), (2, 1), (4, 3), (64, 48)])
def test_an_owner_leaves_some_places_to_others(capacity: int, most: int, acquired: Entered) -> None:
    """D-18: a turn that runs is not stopped for another owner's, so some places are not one's to take."""
    waited: list[None] = []
    lane = Lane(capacity, None, sharing=SHARED._replace(crowded=partial(waited.append, None)))
    slots = [lane.slot(lane.reservation("a"), lambda: acquired("a")) for _ in range(capacity + 1)]
    assert acquired.names == ["a"] * most
    assert bool(waited) == (capacity > 1)

    if capacity > 1:
        lane.slot(lane.reservation("b"), lambda: acquired("b"))
        assert acquired.names[most:] == ["b"]

    slots[0].release()
    assert acquired.names[-1] == "a"


def test_an_owner_alone_has_all_places(acquired: Entered) -> None:
    """R-080, R-040: there is nobody to leave one to."""
    lane = Lane(4, 4)

    for _ in range(8):
        lane.slot(lane.reservation("a"), lambda: acquired("a"))

    assert lane.counts == (4, 4, 0)


def test_an_owner_waits_with_as_many_as_are_left_over() -> None:
    """D-18, D-38: one owner gets half of the waiting room, and there is always some for the next."""
    refusals: list[None] = []
    lane = Lane(1, 7, sharing=SHARED._replace(full=partial(refusals.append, None)))
    for _ in range(4):
        lane.reservation("a")

    with pytest.raises(OwnersShareError, match="Retry after"):
        lane.reservation("a")
    lane.reservation("b")
    lane.reservation("b")
    with pytest.raises(OwnersShareError):
        lane.reservation("b")
    lane.reservation("c")

    assert (lane.counts.reservations, len(refusals)) == (7, 2)


def test_an_owner_waits_for_a_model_with_as_many_as_are_left_over() -> None:
    """R-045, D-18: the same while it is being loaded."""
    cold = ColdAdmissions(3, sharing=SHARED)
    for _ in range(2):
        cold.admit("tiny", "a")

    with pytest.raises(OwnersShareError):
        cold.admit("tiny", "a")

    cold.admit("tiny", "b")
    cold.admit("large", "a")


def test_what_an_owner_s_requests_hold_while_they_wait_leaves_as_much_to_others() -> None:
    """D-38, T2-20: by bytes; a lone request may be of any size that there is."""
    backlog = Backlog(100, lambda: 1, is_shared=lambda: True)
    backlog.resize(0, 30, "a")
    backlog.resize(0, 20, "a")

    with pytest.raises(BacklogFullError):
        backlog.resize(20, 30, "a")
    backlog.resize(0, 40, "b")
    with pytest.raises(BacklogFullError):
        backlog.resize(0, 20, "c")
    backlog.resize(0, 10, "c")

    assert (backlog.size_bytes, backlog.budget.held_by("a"), backlog.budget.reached) == (100, 50, 2)

"""Beginning of requests for a model that is not loaded yet, and what becomes of it when it is."""

import pytest

from turnlog.app.models.admission import ColdAdmissions
from turnlog.app.models.lane import Lane, LaneCounts
from turnlog.domain.errors import ColdQueueFullError, QueueFullError


def test_one_more_than_may_wait_is_admitted_while_the_model_is_loaded() -> None:
    """R-032, R-045, G-011: as many as one runner and the waiters."""
    cold = ColdAdmissions(max_waiting=2)
    for _ in range(3):
        cold.admit("alpha")

    with pytest.raises(ColdQueueFullError) as refusal:
        cold.admit("alpha")

    assert cold.count("alpha") == 3
    assert (refusal.value.code, refusal.value.message) == (
        "queue_full",
        "Model queue full: 3 requests are waiting for the model to load, with a limit of 2 waiting. "
        "Retry after 15s.",
    )


def test_one_models_limit_is_not_anothers() -> None:
    """R-045, G-012."""
    cold = ColdAdmissions(max_waiting=1)
    for _ in range(2):
        cold.admit("alpha")

    cold.admit("beta")

    with pytest.raises(ColdQueueFullError):
        cold.admit("alpha")
    assert (cold.count("alpha"), cold.count("beta"), cold.count("gamma")) == (2, 1, 0)


def test_without_a_limit_nobody_is_refused() -> None:
    """R-036, R-040, G-023."""
    cold = ColdAdmissions(max_waiting=None)

    for _ in range(500):
        cold.admit("alpha")

    assert cold.count("alpha") == 500


def test_who_waits_becomes_a_permit_before_anyone_who_comes_later() -> None:
    """R-042, R-043, G-013."""
    cold, lane = ColdAdmissions(max_waiting=1), Lane(capacity=1, max_waiting=1)
    admissions = [cold.admit("alpha") for _ in range(2)]

    cold.publish("alpha", lane)

    assert lane.counts == LaneCounts(active=0, queued=0, reservations=2)
    with pytest.raises(QueueFullError):
        lane.reservation()
    reservations = [admission.transfer(lane) for admission in admissions]
    assert [reservation.lane for reservation in reservations] == [lane, lane]
    assert (cold.count("alpha"), lane.counts) == (0, LaneCounts(active=0, queued=0, reservations=2))


def test_one_that_did_not_fit_stays_refused_when_there_is_room_later() -> None:
    """R-043, G-014, G-016: it holds nothing then, and gets the refusal that it had."""
    cold, lane = ColdAdmissions(max_waiting=2), Lane(capacity=1, max_waiting=1)
    first, _, third = (cold.admit("alpha") for _ in range(3))
    cold.publish("alpha", lane)

    first.release()
    cold.publish("alpha", lane)
    with pytest.raises(QueueFullError) as refusal:
        third.transfer(lane)
    third.release()

    assert "0 running or queued and 2 admitted" in refusal.value.message
    assert (cold.count("alpha"), lane.counts) == (1, LaneCounts(active=0, queued=0, reservations=1))


def test_being_told_of_the_same_lane_again_changes_nothing() -> None:
    """R-044: the unit is not given back in between, so nobody can take it."""
    cold, lane = ColdAdmissions(max_waiting=1), Lane(capacity=1, max_waiting=0)
    admission = cold.admit("alpha")
    cold.publish("alpha", lane)

    lane.slot(lane.yielding_reservation(), lambda: pytest.fail("the unit was given back"))
    cold.publish("alpha", lane)

    assert admission.transfer(lane).lane is lane
    assert (cold.count("alpha"), lane.counts) == (0, LaneCounts(active=0, queued=0, reservations=1))


def test_a_name_that_comes_to_mean_another_model_takes_its_admissions_along() -> None:
    """R-044, G-015: one unit of one budget, the old one given back first."""
    cold = ColdAdmissions(max_waiting=1)
    old, new = Lane(capacity=1, max_waiting=1), Lane(capacity=1, max_waiting=1)
    admission = cold.admit("alpha")
    cold.publish("alpha", old)
    assert (old.counts, new.counts) == (LaneCounts(0, 0, 1), LaneCounts(0, 0, 0))

    cold.publish("alpha", new)
    assert (old.counts, new.counts) == (LaneCounts(0, 0, 0), LaneCounts(0, 0, 1))

    assert admission.transfer(old).lane is old
    assert (old.counts, new.counts) == (LaneCounts(0, 0, 1), LaneCounts(0, 0, 0))


def test_other_names_are_not_concerned_by_a_model_that_is_there() -> None:
    """R-043."""
    cold, lane = ColdAdmissions(max_waiting=1), Lane(capacity=1, max_waiting=1)
    cold.admit("alpha")
    cold.admit("beta")

    cold.publish("alpha", lane)

    assert (cold.count("beta"), lane.counts) == (1, LaneCounts(active=0, queued=0, reservations=1))


def test_one_that_is_given_back_is_gone_with_its_permit() -> None:
    """R-035: before the model is there and after, and twice is once."""
    cold, lane = ColdAdmissions(max_waiting=1), Lane(capacity=1, max_waiting=1)
    early, late = cold.admit("alpha"), cold.admit("alpha")

    early.release()
    cold.publish("alpha", lane)
    assert (cold.count("alpha"), lane.counts) == (1, LaneCounts(active=0, queued=0, reservations=1))
    late.release()
    late.release()

    assert (cold.count("alpha"), lane.counts) == (0, LaneCounts(active=0, queued=0, reservations=0))


def test_giving_back_what_was_transferred_leaves_the_permit_alone() -> None:
    """R-034, R-035, R-042: from then on the reservation is the request's."""
    cold, lane = ColdAdmissions(max_waiting=1), Lane(capacity=1, max_waiting=1)
    admission = cold.admit("alpha")

    reservation = admission.transfer(lane)
    admission.release()
    assert (cold.count("alpha"), lane.counts) == (0, LaneCounts(active=0, queued=0, reservations=1))

    reservation.release()
    assert lane.counts == LaneCounts(active=0, queued=0, reservations=0)

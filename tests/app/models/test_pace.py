"""What a refused request is told to wait (D-38, T2-20): arithmetic, with time and chance as arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.app.models.lane import Lane
from turnlog.app.models.pace import FIRST_GUESS_S, Pace, retry_after_s
from turnlog.domain.errors import QueueFullError


@pytest.mark.parametrize(
    ("waiting", "capacity", "median_turn_s", "spread", "expected_s"),
    [
        (16, 16, 3.0, 0.0, 3),
        (84, 16, 3.0, 0.0, 16),
        (10, 1, 3.0, 1.0, 36),
        (10, 1, 3.0, -1.0, 24),
        (0, 4, 3.0, 0.0, 1),
        (1, 16, 0.1, -1.0, 1),
        (512, 1, 3.0, 1.0, 120),
        (512, 1, 3.0, -1.0, 96),
    ],
)
def test_it_is_the_time_until_all_who_wait_have_had_their_turn(
    waiting: int, capacity: int, median_turn_s: float, spread: float, expected_s: int
) -> None:
    """T2-20, D-38."""
    assert retry_after_s(waiting, capacity, median_turn_s, spread) == expected_s


@given(
    st.integers(0, 100_000),
    st.integers(1, 64),
    st.floats(0, 100_000),
    st.floats(-1, 1),
)
def test_it_is_1_to_120_seconds(waiting: int, capacity: int, median_turn_s: float, spread: float) -> None:
    """D-38: clients do not wait longer."""
    assert 1 <= retry_after_s(waiting, capacity, median_turn_s, spread) <= 120


def test_the_pace_is_the_median_of_the_recent_turns() -> None:
    """D-38: one turn that took an hour, and turns of long ago, say nothing."""
    pace = Pace()
    assert pace.median_turn_s == FIRST_GUESS_S

    for turn_s in (1.0, 3600.0, 2.0):
        pace.note(turn_s)
    assert pace.median_turn_s == 2.0

    for _ in range(32):
        pace.note(7.0)
    assert pace.median_turn_s == 7.0


def test_a_full_lane_says_when_to_come_back() -> None:
    """T2-20, D-38: by what waits, what runs at once, and the lane's pace."""
    lane = Lane(capacity=2, max_waiting=4, spread=lambda: 1.0)
    lane.pace.note(10.0)
    for _ in range(6):
        lane.slot(None, lambda: None)

    with pytest.raises(QueueFullError, match=r"Retry after 24s\.$") as refusal:
        lane.reservation()

    assert refusal.value.retry_after_s == 24

"""What waits is bounded in bytes (D-38)."""

import pytest

from turnlog.app.models.backlog import Backlog
from turnlog.app.settings import Settings, most_waiting_bytes
from turnlog.domain.errors import BacklogFullError


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    """D-38, T2-20."""
    backlog = Backlog(100, lambda: 7)
    backlog.resize(0, 60)

    with pytest.raises(BacklogFullError) as refusal:
        backlog.resize(0, 41)

    assert (refusal.value.code, refusal.value.retry_after_s) == ("queue_full", 7)
    assert refusal.value.message == (
        "Model queue full: 60 bytes of requests are waiting, with a limit of 100 bytes waiting. "
        "Retry after 7s."
    )
    backlog.resize(0, 40)
    backlog.resize(60, 0)
    backlog.resize(0, 60)
    assert backlog.size_bytes == 100


def test_a_request_that_waits_alone_may_be_of_any_size() -> None:
    """D-38: it would never be let in otherwise."""
    backlog = Backlog(100, lambda: 1)

    backlog.resize(0, 80)
    backlog.resize(80, 500)

    assert backlog.size_bytes == 500


def test_one_that_grows_smaller_is_never_refused() -> None:
    """D-38: it gives something back, however much the others hold."""
    backlog = Backlog(100, lambda: 1)
    backlog.resize(0, 500)
    backlog.budget.total += 10

    backlog.resize(500, 400)

    assert backlog.size_bytes == 410


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        (Settings(), 256 * 1024 * 1024),
        (Settings(max_waiting_bytes=5), 5),
        (Settings(max_queue_depth_per_model="unbounded"), None),
        (Settings(max_queue_depth_per_model="unbounded", max_waiting_bytes=5), 5),
    ],
)
def test_unbounded_means_bytes_too(settings: Settings, most: int | None) -> None:
    """R-040, D-38: unless they are set by themselves."""
    assert most_waiting_bytes(settings) == most

"""Which chains may be continued (R-111, R-113, D-12, D-31)."""

import pytest
from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, FAILED, STARTED
from turnlog.domain.continuation import check_chain
from turnlog.domain.errors import (
    ChainTooLongError,
    PreviousResponseNotCompletedError,
    PreviousResponseNotFoundError,
)
from turnlog.domain.events import ResponseEvent
from turnlog.domain.response import Response, fold_stored


def stored(response_id: str, previous: str | None, *ending: ResponseEvent) -> Response:
    """A response as the store has it."""
    created = replace(CREATED, response_id=response_id, previous_response_id=previous)
    return fold_stored([created, *ending])


FIRST = stored("resp_1", None, STARTED, COMMITTED)
SECOND = stored("resp_2", "resp_1", STARTED, COMMITTED)


def check(*chain: Response, limit: int = 10) -> None:
    """Check the chain behind resp_2."""
    check_chain("resp_2", chain, limit=limit)


def test_a_whole_chain_of_committed_responses_may_be_continued() -> None:
    check(FIRST, SECOND)


def test_a_turn_cut_by_its_limit_may_be_continued() -> None:
    """R-350."""
    check(FIRST, stored("resp_2", "resp_1", STARTED, replace(COMMITTED, status="incomplete")))


def test_nothing_found_is_not_found() -> None:
    """R-113, R-122."""
    with pytest.raises(PreviousResponseNotFoundError, match="'resp_2' was not found or has expired"):
        check()


def test_a_missing_ancestor_makes_the_whole_chain_not_found() -> None:
    """R-111."""
    with pytest.raises(PreviousResponseNotFoundError, match="its ancestor 'resp_1' is gone"):
        check(SECOND)


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ((), "queued"),
        ((STARTED,), "in_progress"),
        ((STARTED, FAILED), "failed"),
        ((STARTED, replace(FAILED, reason="cancelled")), "cancelled"),
    ],
)
def test_what_did_not_end_well_is_not_continued(ending: tuple[ResponseEvent, ...], status: str) -> None:
    """D-12."""
    with pytest.raises(PreviousResponseNotCompletedError, match=f"'resp_2' is {status}"):
        check(FIRST, stored("resp_2", "resp_1", *ending))


def test_a_chain_over_the_limit_is_refused() -> None:
    """D-31, R-112."""
    with pytest.raises(ChainTooLongError, match="more than 1 responses"):
        check(FIRST, SECOND, limit=1)

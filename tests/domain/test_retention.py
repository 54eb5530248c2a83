"""How long a response is kept, and until when it is of use (R-024, R-027, D-37)."""

import pytest
from msgspec.structs import replace

from tests.domain.stories import CREATED
from turnlog.domain.events import ResponseCreated
from turnlog.domain.redaction import without_content
from turnlog.domain.retention import earliest_expiry, expires_at, requested_retention_s

LIMITED = replace(CREATED, retention_s=60)
OLD_AND_LIMITED = replace(CREATED, metadata={"retention_seconds": 60})


def test_the_request_wins_over_the_server() -> None:
    """R-024, R-027."""
    assert [expires_at(1_999, None, 600), expires_at(1_999, 60, 600)] == [601, 61]


@pytest.mark.parametrize("created", [LIMITED, OLD_AND_LIMITED])
def test_what_a_request_asked_for_is_kept_when_its_content_goes(created: ResponseCreated) -> None:
    """D-37: or a rebuild would make its response last as long as its conversation."""
    left = without_content(created, "abc")

    assert isinstance(left, ResponseCreated)
    assert [requested_retention_s(each) for each in (CREATED, created, left)] == [None, 60, 60]


def test_a_turn_is_of_use_until_it_expires_or_a_limit_before_it_ends() -> None:
    """R-126, R-352, D-37: an ancestor without a limit is kept by the turn itself."""
    early = replace(CREATED, expires_at=CREATED.expires_at - 100)

    assert earliest_expiry(CREATED, []) == earliest_expiry(CREATED, [early]) == CREATED.expires_at
    assert earliest_expiry(CREATED, [early, replace(early, retention_s=60)]) == early.expires_at

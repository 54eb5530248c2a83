"""Why a turn failed, in plain words."""

from typing import get_args

from tests.domain.stories import COMMITTED, CREATED, FAILED, STARTED
from turnlog.domain.audit.failures import FAILURES, Failure, failure
from turnlog.domain.events import FailureReason
from turnlog.domain.response import fold


def test_every_reason_is_explained() -> None:
    assert FAILURES.keys() == set(get_args(FailureReason))


def test_a_failure_has_its_reason_its_message_and_both_in_plain_words() -> None:
    assert failure(fold([CREATED, FAILED])) == Failure("error", "it broke", *FAILURES["error"])
    assert failure(fold([CREATED, STARTED])) is None
    assert failure(fold([CREATED, STARTED, COMMITTED])) is None

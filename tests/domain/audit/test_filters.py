"""What an auditor can ask for, and who may ask it."""

from typing import Any

import pytest

from turnlog.domain.audit.filters import AuditFilter, check_may_ask
from turnlog.domain.errors import ForbiddenError, InvalidRequestError
from turnlog.domain.owners import LOCAL, Caller, Role

AUDITOR = Caller("ada", frozenset({Role.AUDITOR}))
OPERATOR = Caller("olga", frozenset({Role.OPERATOR}))


@pytest.mark.parametrize(
    ("wanted", "param", "message"),
    [
        ({"state": "done"}, "state", "state must be one of created, in_progress, committed"),
        ({"status": "persisted"}, "status", "status must be one of queued, in_progress, completed"),
        ({"reason": "bad luck"}, "reason", "reason must be one of error, client_abort"),
        ({"order": "up"}, "order", "order must be one of asc, desc"),
        ({"q": "\u200b "}, "q", "q must have at least one visible character"),
        ({"q": "\ud800abc"}, "q", "an unpaired surrogate"),
        ({"metadata": {"k": "\ud800"}}, "metadata.k", "an unpaired surrogate"),
        ({"limit": 0}, "limit", "limit must be from 1 to 1000"),
        ({"limit": 1001}, "limit", "limit must be from 1 to 1000"),
        ({"min_tokens": 2**63}, "min_tokens", "min_tokens is out of range"),
        ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata", "17 metadata filters are too many"),
    ],
)
def test_a_condition_no_response_can_meet_is_refused(wanted: Any, param: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as refused:
        AuditFilter(**wanted)

    assert refused.value.param == param


@pytest.mark.parametrize("inside", [{"q": "secret"}, {"tool": "add"}, {"metadata": {"team": "x"}}])
def test_operators_look_into_failed_turns_only(inside: Any) -> None:
    """D-18: whether a turn has a text would tell of its content, as the content would."""
    wide = AuditFilter(**inside)
    for caller in (LOCAL, AUDITOR):
        check_may_ask(wide, caller)
    for failed in ({"status": "failed"}, {"status": "cancelled"}, {"state": "failed"}, {"reason": "error"}):
        check_may_ask(AuditFilter(**(inside | failed)), OPERATOR)
    for other in ({}, {"status": "completed"}, {"state": "persisted"}):
        with pytest.raises(ForbiddenError, match="role auditor"):
            check_may_ask(AuditFilter(**(inside | other)), OPERATOR)


def test_operators_may_ask_for_metadata() -> None:
    check_may_ask(AuditFilter(model="tiny", owner="alice", min_tokens=1), OPERATOR)

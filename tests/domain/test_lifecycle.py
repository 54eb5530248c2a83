"""The lifecycle: the table is the only way from one status to another, and the docs draw it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.stories import (
    COMMITTED,
    CREATED,
    FAILED,
    HARD_TIMED_OUT,
    PERSISTED,
    STARTED,
    Given,
)
from turnlog.domain.events import ResponseEvent
from turnlog.domain.lifecycle import TABLE, LifecycleEvent, Status, diagram
from turnlog.domain.response import fold, fold_stored

HISTORIES: dict[Status, tuple[ResponseEvent, ...]] = {
    Status.CREATED: (CREATED,),
    Status.IN_PROGRESS: (CREATED, STARTED),
    Status.COMMITTED: (CREATED, STARTED, COMMITTED),
    Status.FAILED: (CREATED, STARTED, FAILED),
    Status.PERSISTED: (CREATED, STARTED, COMMITTED, PERSISTED),
    Status.HARD_TIMED_OUT: (CREATED, STARTED, COMMITTED, HARD_TIMED_OUT),
}
EVENTS: dict[str, LifecycleEvent] = {
    "start": STARTED,
    "commit": COMMITTED,
    "fail": FAILED,
    "persist": PERSISTED,
    "hard_time_out": HARD_TIMED_OUT,
}
LEGAL = {(source, row.trigger): row.dest for row in TABLE for source in row.sources}


@given(status=st.sampled_from(Status), trigger=st.sampled_from(sorted(EVENTS)))
def test_a_response_admits_what_the_table_says_and_nothing_else(status: Status, trigger: str) -> None:
    response = Given(*HISTORIES[status])

    if (status, trigger) in LEGAL:
        assert response.when(EVENTS[trigger]).status is LEGAL[status, trigger]
    else:
        assert response.refuses(EVENTS[trigger]) == f"cannot {trigger} a response that is {status}"


@pytest.mark.parametrize("status", Status)
def test_every_status_is_what_its_history_folds_to(status: Status) -> None:
    assert fold(HISTORIES[status]).status is status


@pytest.mark.parametrize("status", [Status.FAILED, Status.PERSISTED])
def test_a_final_status_admits_no_trigger(status: Status) -> None:
    assert not [trigger for source, trigger in LEGAL if source is status]


def test_replay_never_asks_the_machine_so_a_stricter_table_still_reads_an_old_log() -> None:
    not_in_the_table = (CREATED, COMMITTED, HARD_TIMED_OUT, STARTED)

    assert fold(not_in_the_table).status is Status.IN_PROGRESS


@pytest.mark.parametrize("status", [Status.COMMITTED, Status.HARD_TIMED_OUT, Status.PERSISTED])
def test_a_stored_commit_reads_as_persisted_whatever_followed(status: Status) -> None:
    assert fold_stored(HISTORIES[status]).status is Status.PERSISTED


def test_a_stored_failure_reads_as_failed() -> None:
    assert fold_stored(HISTORIES[Status.FAILED]).status is Status.FAILED


def test_the_documents_draw_the_table() -> None:
    drawn = Path("docs/lifecycle.md").read_text(encoding="utf-8")

    assert f"```mermaid\n{diagram()}\n```" in drawn, f"docs/lifecycle.md should hold\n{diagram()}"

"""The lifecycle: the table is the only way from one status to another, and the docs draw it."""

from pathlib import Path

import pytest

from tests.domain.stories import (
    COMMITTED,
    CREATED,
    FAILED,
    HARD_TIMED_OUT,
    NOON_MS,
    PERSISTED,
    STARTED,
    Command,
    Given,
    start,
)
from turnlog.domain.events import ResponseEvent
from turnlog.domain.lifecycle import TABLE, Status, diagram
from turnlog.domain.ports import End
from turnlog.domain.response import fold, fold_stored

HISTORIES: dict[Status, tuple[ResponseEvent, ...]] = {
    Status.CREATED: (CREATED,),
    Status.IN_PROGRESS: (CREATED, STARTED),
    Status.COMMITTED: (CREATED, STARTED, COMMITTED),
    Status.FAILED: (CREATED, STARTED, FAILED),
    Status.PERSISTED: (CREATED, STARTED, COMMITTED, PERSISTED),
    Status.HARD_TIMED_OUT: (CREATED, STARTED, COMMITTED, HARD_TIMED_OUT),
}
END = End(finish_reason="stop", text="", prompt_tokens=3, output_tokens=2)
COMMANDS: dict[str, Command] = {
    "start": start,
    "commit": lambda response: response.finish(END, at_ms=NOON_MS),
    "fail": lambda response: response.fail("error", at_ms=NOON_MS, message="it broke"),
    "persist": lambda response: response.persist(at_ms=NOON_MS, write_ms=2.5),
    "hard_time_out": lambda response: response.hard_time_out(at_ms=NOON_MS, after_ms=60_000),
}
LEGAL = {(source, row.trigger): row.dest for row in TABLE for source in row.sources}


@pytest.mark.parametrize("trigger", COMMANDS)
@pytest.mark.parametrize("status", Status)
def test_a_response_admits_what_the_table_says_and_nothing_else(status: Status, trigger: str) -> None:
    response = Given(*HISTORIES[status])

    if (status, trigger) in LEGAL:
        events = response.when(COMMANDS[trigger])
        assert fold([*response.history, *events]).status is LEGAL[status, trigger]
    else:
        assert response.refuses(COMMANDS[trigger]) == f"cannot {trigger} a response that is {status}"


def test_every_row_of_the_table_has_its_command() -> None:
    assert {row.trigger for row in TABLE} == COMMANDS.keys()


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

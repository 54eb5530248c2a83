"""The rows of the read model follow from the log, whether written with it or made again from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adapters.eventstore import readmodel
from domain.errors import StorageError
from domain.events import ItemOpened, Recorded, ResponseEvent
from domain.items import FunctionCallItem
from domain.ports import ResponseRow
from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    HARD_TIMED_OUT,
    INCOMPLETE,
    PERSISTED,
    STARTED,
    Store,
    created,
    execute,
    item_events,
    opened,
    recorded,
    turn,
)

CALL = FunctionCallItem("fc_1", "call_1", "look", "", "in_progress")
LIVES: list[list[Recorded]] = [
    recorded("resp_0", created("resp_0")),
    recorded("resp_1", created("resp_1", previous="resp_0", at_ms=5), STARTED),
    recorded("resp_2", created("resp_2"), STARTED, *item_events("msg_2"), COMMITTED),
    recorded("resp_3", created("resp_3"), FAILED),
    recorded(
        "resp_4",
        created("resp_4"),
        STARTED,
        *item_events("msg_4"),
        ItemOpened(at_ms=1, output_index=1, item=CALL),
        INCOMPLETE,
        HARD_TIMED_OUT,
        PERSISTED,
    ),
    turn("resp_5", previous="resp_2"),
]


def tables(path: Path) -> list[list[tuple[Any, ...]]]:
    statements = (
        "SELECT * FROM responses ORDER BY response_id",
        "SELECT * FROM response_items ORDER BY item_id",
        "SELECT * FROM readmodel_version",
    )
    return [execute(path, statement) for statement in statements]


@pytest.mark.parametrize(
    ("events", "status", "outcome", "reason"),
    [
        ([], "created", None, None),
        ([STARTED], "in_progress", None, None),
        ([STARTED, *item_events("msg_a")], "in_progress", None, None),
        ([STARTED, COMMITTED], "persisted", "completed", None),
        ([STARTED, INCOMPLETE], "persisted", "incomplete", None),
        ([STARTED, COMMITTED, PERSISTED], "persisted", "completed", None),
        ([STARTED, COMMITTED, HARD_TIMED_OUT], "persisted", "completed", None),
        ([STARTED, COMMITTED, HARD_TIMED_OUT, PERSISTED], "persisted", "completed", None),
        ([FAILED], "failed", None, "client_abort"),
        ([STARTED, FAILED], "failed", None, "client_abort"),
    ],
)
def test_a_response_has_the_row_its_events_tell(
    store: Store, events: Sequence[ResponseEvent], status: str, outcome: Any, reason: str | None
) -> None:
    story = recorded("resp_b", created("resp_b", previous="resp_a"), *events)

    for event in story:
        store.journal.append([event]).result()

    assert store.reader.rows().result() == [
        ResponseRow(
            response_id="resp_b",
            previous_response_id="resp_a",
            owner="ada",
            model="smol",
            status=status,
            outcome=outcome,
            reason=reason,
            created_ms=1000,
            expires_at=2000,
            last_version=len(story),
        )
    ]


def test_an_item_id_leads_to_its_response_and_place(store: Store) -> None:
    for life in LIVES:
        store.journal.append(life).result()

    items = execute(
        store.path, "SELECT item_id, response_id, output_index FROM response_items ORDER BY item_id"
    )

    assert items == [
        ("fc_1", "resp_4", 1),
        ("msg_2", "resp_2", 0),
        ("msg_4", "resp_4", 0),
        ("msg_resp_5", "resp_5", 0),
    ]


def test_an_item_id_stays_with_the_first_response_that_used_it(store: Store) -> None:
    for response_id in ("resp_a", "resp_b"):
        events = recorded(response_id, created(response_id), STARTED, *item_events("msg_same"))
        store.journal.append(events).result()

    assert execute(store.path, "SELECT * FROM response_items") == [("msg_same", "resp_a", 0)]


@pytest.mark.parametrize(
    "loss",
    [
        "DELETE FROM readmodel_version",
        "UPDATE readmodel_version SET version = 0",
        "DROP TABLE readmodel_version",
    ],
)
def test_rows_made_again_from_the_log_are_the_rows_that_were_written(path: Path, loss: str) -> None:
    with opened(path) as store:
        for life in LIVES:
            for event in life:
                store.journal.append([event])
        store.journal.append([]).result()
    written = tables(path)
    execute(path, "UPDATE responses SET status = 'lost', last_version = 0")
    execute(path, "DELETE FROM response_items")
    execute(path, loss)

    with opened(path):
        pass

    assert tables(path) == written
    assert [len(rows) for rows in written] == [6, 4, 1]


def test_rows_of_this_version_are_left_alone(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
    execute(path, "UPDATE responses SET owner = 'eve'")

    with opened(path) as store:
        rows = store.reader.rows().result()

    assert [row.owner for row in rows] == ["eve"]


def test_a_new_version_of_the_read_model_is_made_from_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
    responses, items, version = tables(path)
    execute(path, "DELETE FROM responses")
    monkeypatch.setattr(readmodel, "VERSION", 99)

    with opened(path):
        pass

    assert (version, tables(path)) == ([(2,)], [responses, items, [(99,)]])


def test_a_log_that_cannot_be_read_keeps_the_rows_it_had(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
    execute(path, "UPDATE stored_events SET topic = 'response.dreamt.v1' WHERE originator_version = 3")
    execute(path, "UPDATE readmodel_version SET version = 0")
    before = tables(path)

    with pytest.raises(
        StorageError, match=r"Event 3 of response 'resp_a' \(response.dreamt.v1\) cannot be read"
    ):
        opened(path).__enter__()

    assert tables(path) == before

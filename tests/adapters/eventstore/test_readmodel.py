"""The rows of the read model follow from the log, whether written with it or made again from it."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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
from tests.listed import listed
from turnlog.adapters.eventstore import readmodel, recorder, textindex
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.store import reindex
from turnlog.domain.errors import StorageError
from turnlog.domain.events import ItemClosed, ItemOpened, Recorded, ResponseEvent
from turnlog.domain.items import FunctionCallItem

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
    """All that the read model holds; of the text index every place of every three characters."""
    execute(path, "CREATE VIRTUAL TABLE IF NOT EXISTS places USING fts5vocab (response_texts, instance)")
    statements = (
        "SELECT * FROM responses ORDER BY response_id",
        "SELECT * FROM response_items ORDER BY item_id",
        "SELECT * FROM response_metadata ORDER BY n, key",
        "SELECT * FROM response_tools ORDER BY n, name",
        "SELECT * FROM places ORDER BY doc, offset",
        "SELECT * FROM conversations ORDER BY chain",
        "SELECT * FROM readmodel_version",
    )
    found = [execute(path, statement) for statement in statements]
    execute(path, "DROP TABLE places")
    return found


@pytest.mark.parametrize(
    ("events", "state", "outcome", "reason"),
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
    store: Store, events: Sequence[ResponseEvent], state: str, outcome: Any, reason: str | None
) -> None:
    story = recorded("resp_b", created("resp_b", previous="resp_a"), *events)

    for event in story:
        store.journal.append([event]).result()

    (row,) = listed(store.reader)
    assert (row.response_id, row.previous_response_id, row.owner, row.model) == (
        "resp_b",
        "resp_a",
        "ada",
        "smol",
    )
    assert (row.state, row.outcome, row.reason) == (state, outcome, reason)
    assert (row.created_ms, row.expires_at, row.last_version) == (1000, 2000, len(story))


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
        ("msg_5", "resp_5", 0),
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
    assert [len(rows) for rows in written] == [6, 4, 0, 0, 18, 4, 1]


def test_rows_of_this_version_are_left_alone(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
    execute(path, "UPDATE responses SET owner = 'eve'")

    with opened(path) as store:
        rows = listed(store.reader)

    assert [row.owner for row in rows] == ["eve"]


def test_a_new_version_of_the_read_model_is_made_from_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
    responses, items, *others, version = tables(path)
    written_version = readmodel.VERSION
    execute(path, "DELETE FROM responses")
    monkeypatch.setattr(readmodel, "VERSION", 99)

    with opened(path):
        pass

    assert (version, tables(path)) == ([(written_version,)], [responses, items, *others, [(99,)]])


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


IDS = st.sampled_from([f"resp_{letter}" for letter in "abcdef"])


class Life(NamedTuple):
    """What is drawn of a response: its parents may be stored before it, after it or never."""

    previous: str | None
    replay_of: str | None
    words: list[str]
    calls: list[str]
    ending: ResponseEvent | None
    expires_at: int
    retention_s: int | None

    def told(self, response_id: str) -> list[Recorded]:
        request = replace(
            created(response_id, previous=self.previous, text=" ".join(self.words)),
            replay_of=self.replay_of,
            metadata={word: len(word) for word in self.words},
            retry_keys={"idempotency-key": self.words[0]} if self.words else {},
            expires_at=self.expires_at,
            retention_s=self.retention_s,
        )
        calls: list[ResponseEvent] = [
            ItemClosed(
                at_ms=3,
                output_index=n,
                item=replace(CALL, id=f"fc_{response_id}_{n}", name=name, arguments=name),
            )
            for n, name in enumerate(self.calls, start=1)
        ]
        ending = [self.ending] if self.ending else []
        return recorded(response_id, request, STARTED, *item_events(f"msg_{response_id}"), *calls, *ending)


LIVES_DRAWN = st.dictionaries(
    IDS,
    st.builds(
        Life,
        previous=st.none() | IDS,
        replay_of=st.none() | IDS,
        words=st.lists(st.sampled_from(["apple", "Birne", "céleri", "a\0b c"]), max_size=3),
        calls=st.lists(st.sampled_from(["look", "listen"]), max_size=3),
        ending=st.sampled_from([None, COMMITTED, INCOMPLETE, FAILED, replace(FAILED, calls=(CALL,))]),
        expires_at=st.sampled_from([100, 300, 5000]),
        retention_s=st.none() | st.just(99),
    ),
)


@settings(max_examples=15, deadline=None)
@given(lives=LIVES_DRAWN, data=st.data())
def test_whatever_happened_the_rows_made_again_are_the_rows_that_were_written(
    lives: dict[str, Life], data: st.DataObject
) -> None:
    """Also late parents, replays, expiry, and a sweep that was broken off."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "turnlog.db"
        with opened(path) as store:
            left = {response_id: life.told(response_id) for response_id, life in lives.items()}
            while left:
                response_id = data.draw(st.sampled_from(sorted(left)))
                store.journal.append([left[response_id].pop(0)])
                if not left[response_id]:
                    del left[response_id]
                if data.draw(st.integers(0, 9)) == 0:
                    store.journal.expire(1000, limit=data.draw(st.integers(1, 8)))
            store.journal.append([]).result()
        written = tables(path)

        events = reindex(path)

        assert tables(path) == written
        assert [(events,)] == execute(path, "SELECT count(*) FROM stored_events")


def test_a_sweep_that_was_broken_off_leaves_the_rows_that_are_made_again(path: Path) -> None:
    """D-14: rows and index lose their content with the first event, not with the last."""
    life = recorded(
        "resp_a",
        replace(created("resp_a"), metadata={"job": "7"}, expires_at=100),
        STARTED,
        ItemClosed(at_ms=3, output_index=0, item=CALL),
        COMMITTED,
    )
    with opened(path) as store:
        store.journal.append(life).result()
        store.journal.expire(1000, limit=1).result()
    written = tables(path)

    reindex(path)

    assert tables(path) == written
    assert written[2:5] == [[], [], []]


def test_reindexing_tells_how_far_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "EVENTS_PER_CHUNK", 3)
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
    told = []

    reindex(path, lambda done, total: told.append((done, total)))

    assert told == [(3, 7), (6, 7), (7, 7)]


def test_a_store_in_use_is_not_indexed_anew(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()

    with closing(StoreLock(path)), pytest.raises(StorageError, match="is in use"):
        reindex(path)


def test_an_sqlite_that_cannot_search_text_is_refused_at_the_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textindex, "TOKENIZER", "tetragram")

    with pytest.raises(
        StorageError, match=r"cannot search text: no such tokenizer: tetragram. turnlog needs"
    ):
        opened(path).__enter__()

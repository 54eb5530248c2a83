"""The journal stores all of an append or none of it, in order, and never leaves a gap."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    PERSISTED,
    STARTED,
    Store,
    created,
    execute,
    opened,
    recorded,
    turn,
    write_locked,
)
from tests.listed import listed
from turnlog.adapters.eventstore.journal import EVENTS_PER_TRANSACTION
from turnlog.adapters.eventstore.recorder import EventDatastore
from turnlog.domain.errors import StorageConflictError, StorageError


def test_what_was_appended_is_read_back(store: Store) -> None:
    story = turn("resp_a")

    store.journal.append(story[:2]).result()
    store.journal.append(story[2:]).result()

    assert store.reader.events("resp_a").result() == story


def test_what_was_appended_is_there_after_a_restart(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()

    with opened(path) as store:
        store.journal.append(recorded("resp_a", PERSISTED, first=8)).result()
        events = store.reader.events("resp_a").result()

    assert events == [*turn("resp_a"), *recorded("resp_a", PERSISTED, first=8)]


def test_a_gap_is_refused_and_nothing_of_that_append_is_stored(store: Store) -> None:
    store.journal.append(recorded("resp_a", created("resp_a"))).result()

    with pytest.raises(
        StorageConflictError, match="version 4 of response 'resp_a' does not follow the last one stored"
    ):
        store.journal.append(
            [*turn("resp_b"), *recorded("resp_a", STARTED, first=2), *recorded("resp_a", COMMITTED, first=4)]
        ).result()

    assert store.reader.events("resp_a").result() == recorded("resp_a", created("resp_a"))
    assert store.reader.events("resp_b").result() == []
    assert [row.response_id for row in listed(store.reader)] == ["resp_a"]


def test_a_version_is_stored_once(store: Store) -> None:
    store.journal.append(turn("resp_a")).result()

    with pytest.raises(StorageConflictError, match="version 2 of response 'resp_a' does not follow"):
        store.journal.append(recorded("resp_a", FAILED, first=2)).result()

    assert store.reader.events("resp_a").result() == turn("resp_a")


def test_a_response_begins_with_version_1(store: Store) -> None:
    with pytest.raises(StorageConflictError, match="version 0 of response 'resp_a' does not follow"):
        store.journal.append(recorded("resp_a", created("resp_a"), first=0)).result()


def test_after_a_failed_append_the_next_one_of_its_response_fails_too(store: Store) -> None:
    unwritable = recorded("resp_a", created("resp_a", text="\ud83d"))

    failures = [
        store.journal.append(unwritable).exception(),
        store.journal.append(recorded("resp_a", STARTED, first=2)).exception(),
    ]

    assert [type(failure) for failure in failures] == [StorageError, StorageConflictError]
    assert store.reader.events("resp_a").result() == []


def test_what_could_not_be_read_back_is_not_stored(store: Store) -> None:
    timeless = recorded("resp_a", created("resp_a", at_ms=1000), STARTED)
    nan = recorded("resp_a", type(PERSISTED)(at_ms=1, write_ms=float("nan")), first=3)
    store.journal.append(timeless).result()

    with pytest.raises(StorageError, match=r"Event 3 of response 'resp_a' .* cannot be read"):
        store.journal.append(nan).result()

    assert store.reader.events("resp_a").result() == timeless


def test_an_append_that_is_refused_does_not_take_its_neighbours_down(store: Store) -> None:
    # While the file is locked the appends queue, and the writer then finds them together.
    with write_locked(store.path):
        appends = [
            store.journal.append(events)
            for events in (
                turn("resp_a"),
                turn("resp_b"),
                recorded("resp_b", FAILED, first=7),
                recorded("resp_c", STARTED, first=2),
                turn("resp_d"),
            )
        ]

    assert [type(append.exception()) for append in appends] == [
        type(None),
        type(None),
        StorageConflictError,
        StorageConflictError,
        type(None),
    ]
    assert [store.reader.events(f"resp_{letter}").result() for letter in "abcd"] == [
        turn("resp_a"),
        turn("resp_b"),
        [],
        turn("resp_d"),
    ]


def test_appends_are_stored_in_the_order_they_were_made(store: Store) -> None:
    longer = recorded("resp_b", created("resp_b"), *[PERSISTED] * EVENTS_PER_TRANSACTION)

    for event in turn("resp_a"):
        store.journal.append([event])
    for events in (longer, turn("resp_c"), turn("resp_d")):
        last = store.journal.append(events)
    last.result()

    stored = execute(store.path, "SELECT originator_id, originator_version FROM stored_events ORDER BY rowid")
    expected = [*turn("resp_a"), *longer, *turn("resp_c"), *turn("resp_d")]
    assert stored == [(event.response_id, event.version) for event in expected]


def test_any_thread_may_append(store: Store) -> None:
    ids = [f"resp_{number}" for number in range(200)]

    with ThreadPoolExecutor(8) as threads:
        appends = list(threads.map(lambda response_id: store.journal.append(turn(response_id)), ids))
    for append in appends:
        append.result()

    assert [store.reader.events(response_id).result() for response_id in ids] == [
        turn(response_id) for response_id in ids
    ]


def test_appending_nothing_waits_for_what_was_appended_before(store: Store) -> None:
    append = store.journal.append(turn("resp_a"))

    store.journal.append([]).result()

    assert append.done()


def test_who_stops_waiting_does_not_undo_the_append(store: Store) -> None:
    with write_locked(store.path):
        append = store.journal.append(turn("resp_a"))
        cancelled = append.cancel()

    assert (cancelled, append.result()) == (False, None)
    assert store.reader.events("resp_a").result() == turn("resp_a")


def test_closing_writes_what_is_queued_and_refuses_more(path: Path) -> None:
    with opened(path) as store:
        with write_locked(path):
            appends = [store.journal.append(turn(f"resp_{number}")) for number in range(20)]
        store.journal.close()
        late = store.journal.append(turn("resp_late"))

    assert [append.exception() for append in appends] == [None] * 20
    with pytest.raises(StorageError, match="The event store is closed"):
        late.result()


@pytest.mark.parametrize("read_only", [False, True])
def test_every_connection_has_its_pragmas(store: Store, *, read_only: bool) -> None:
    datastore = EventDatastore(store.path, read_only=read_only)

    with datastore.get_connection(commit=False) as one, datastore.get_connection(commit=False) as other:
        settings = []
        for connection in (one, other):
            cursor = connection.cursor()
            for pragma in ("synchronous", "fullfsync", "secure_delete", "busy_timeout", "journal_mode"):
                cursor.execute(f"PRAGMA {pragma}")
                settings.append((pragma, cursor.fetchone()[0]))
    datastore.close()

    assert settings == 2 * [
        ("synchronous", 2),
        ("fullfsync", 1),
        ("secure_delete", 1),
        ("busy_timeout", 2000),
        ("journal_mode", "wal"),
    ]

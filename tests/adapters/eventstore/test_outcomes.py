"""Every append has one outcome, and it is true: stored, conflict, refused, or not settled yet."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.adapters.eventstore.faults import (
    CORRUPT,
    FULL,
    IO_ERROR,
    LOCKED,
    READ_ONLY,
    Fault,
    FaultyStore,
    Gate,
    after_commit,
    before,
    opened_faulty,
    sqlite_error,
    works,
)
from tests.adapters.eventstore.locker import locked_by_another_process
from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    PERSISTED,
    STARTED,
    created,
    execute,
    recorded,
    turn,
)
from turnlog.adapters.eventstore import recorder
from turnlog.domain.errors import StorageConflictError, StorageError, StorageRefusedError


@pytest.fixture
def store(faulty: FaultyStore) -> FaultyStore:
    return faulty


def events_of(store: FaultyStore, *letters: str) -> list[int]:
    """How many events each response has in the log; the versions must have no gap."""
    counts = []
    for letter in letters:
        versions = [each.version for each in store.reader.events(f"resp_{letter}").result()]
        assert versions == list(range(1, len(versions) + 1))
        counts.append(len(versions))
    return counts


@pytest.mark.parametrize("error", [LOCKED, IO_ERROR, OSError("bad disk"), MemoryError()], ids=str)
@pytest.mark.parametrize("fault", [before, after_commit])
def test_a_write_that_gave_no_clear_answer_is_tried_again_and_stored_once(
    store: FaultyStore, fault: Callable[[Exception], Fault], error: Exception
) -> None:
    store.recorder.faults += [fault(error), before(error), before(error)]

    store.journal.append(turn("resp_a")).result()
    store.journal.append(turn("resp_b")).result()

    assert events_of(store, "a", "b") == [7, 7]
    # The very same rows each time.
    assert store.recorder.tried[:4] == [store.recorder.tried[0]] * 4


@pytest.mark.parametrize("error", [FULL, READ_ONLY, CORRUPT, IO_ERROR], ids=str)
def test_a_commit_reported_as_failed_that_landed_counts_as_stored(
    store: FaultyStore, error: Exception
) -> None:
    store.recorder.faults.append(after_commit(error))

    store.journal.append(turn("resp_a")).result()

    assert events_of(store, "a") == [7]


@pytest.mark.parametrize(
    ("error", "reason"), [(FULL, "full"), (READ_ONLY, "read_only"), (CORRUPT, "corrupt")], ids=str
)
def test_a_store_that_takes_no_writes_says_why_and_takes_them_again_later(
    store: FaultyStore, error: Exception, reason: str
) -> None:
    """R-361: it is told, not hidden."""
    store.recorder.faults.append(before(error))

    refused = store.journal.append(turn("resp_a")).exception()
    store.journal.append(turn("resp_b")).result()

    assert isinstance(refused, StorageRefusedError)
    assert (refused.reason, refused.code) == (reason, f"storage_{reason}")
    assert events_of(store, "a", "b") == [0, 7]


def test_an_error_that_is_a_bug_fails_its_append_and_the_writer_lives(store: FaultyStore) -> None:
    for error in (TypeError("a bug"), sqlite_error(sqlite3.SQLITE_ERROR, "no such table"), KeyError("x")):
        store.recorder.faults.append(before(error))
        with pytest.raises(StorageError, match="The events could not be stored"):
            store.journal.append(turn("resp_a")).result()

    store.journal.append(turn("resp_a")).result()

    assert events_of(store, "a") == [7]


def test_another_event_in_the_place_is_a_conflict(store: FaultyStore) -> None:
    """R-109: an id is inserted once."""
    store.journal.append(turn("resp_a")).result()

    with pytest.raises(StorageConflictError) as conflict:
        store.journal.append(recorded("resp_a", created("resp_a", text="not hi"))).result()

    assert conflict.value.code == "storage_conflict"
    assert store.reader.events("resp_a").result() == turn("resp_a")


def test_the_same_event_in_the_place_is_no_conflict(store: FaultyStore) -> None:
    store.journal.append(turn("resp_a")).result()

    store.journal.append(turn("resp_a")).result()

    assert events_of(store, "a") == [7]


def test_a_log_that_cannot_be_read_back_is_asked_until_it_answers(store: FaultyStore) -> None:
    store.recorder.faults.append(after_commit(IO_ERROR))
    store.recorder.unreadable += [IO_ERROR, IO_ERROR]

    store.journal.append(turn("resp_a")).result()

    assert (events_of(store, "a"), list(store.recorder.unreadable)) == ([7], [])


def test_a_corrupt_log_need_not_be_read_back_to_refuse(store: FaultyStore) -> None:
    store.recorder.faults.append(before(CORRUPT))
    store.recorder.unreadable.append(CORRUPT)

    with pytest.raises(StorageRefusedError, match="malformed"):
        store.journal.append(turn("resp_a")).result()


def test_an_append_that_is_refused_does_not_take_its_batch_down(store: FaultyStore) -> None:
    gate = Gate()
    # The first write is held until all are queued; the batch fails, then the second of its appends.
    store.recorder.faults += [gate, before(FULL), works, before(FULL)]

    first = store.journal.append(turn("resp_a"))
    gate.reached.wait()
    batch = [store.journal.append(turn(f"resp_{letter}")) for letter in "bcd"]
    gate.open.set()
    outcomes = [type(append.exception()) for append in (first, *batch)]

    assert outcomes == [type(None), type(None), StorageRefusedError, type(None)]
    assert events_of(store, "a", "b", "c", "d") == [7, 7, 0, 7]


def test_a_batch_whose_commit_was_reported_as_failed_is_stored_once(store: FaultyStore) -> None:
    gate = Gate()
    store.recorder.faults += [gate, after_commit(IO_ERROR)]

    store.journal.append(turn("resp_a"))
    gate.reached.wait()
    batch = [store.journal.append(turn(f"resp_{letter}")) for letter in "bcd"]
    gate.open.set()
    for append in batch:
        append.result()

    assert events_of(store, "a", "b", "c", "d") == [7, 7, 7, 7]


@pytest.mark.parametrize("fault", [before(LOCKED), before(IO_ERROR), after_commit(IO_ERROR)])
def test_appends_keep_their_order_while_writes_are_tried_again(store: FaultyStore, fault: Fault) -> None:
    story = turn("resp_a")
    gate = Gate(fault)
    store.recorder.faults += [gate, fault, fault, fault]

    appends = [store.journal.append([event]) for event in story]
    gate.reached.wait()
    appends.append(store.journal.append(turn("resp_b")))
    gate.open.set()
    for append in appends:
        append.result()

    stored = execute(store.path, "SELECT originator_id, originator_version FROM stored_events ORDER BY rowid")
    assert stored == [(event.response_id, event.version) for event in [*story, *turn("resp_b")]]


def test_what_follows_a_refused_append_is_refused_for_the_same_reason(store: FaultyStore) -> None:
    gate = Gate(before(FULL))
    store.journal.append(recorded("resp_a", created("resp_a"))).result()
    store.recorder.faults.append(gate)

    appends = [store.journal.append(recorded("resp_a", STARTED, first=2))]
    gate.reached.wait()
    appends += [
        store.journal.append(recorded("resp_a", COMMITTED, first=3)),
        store.journal.append(recorded("resp_a", PERSISTED, first=4)),
    ]
    gate.open.set()

    refused = [append.exception() for append in appends]
    assert {type(each) for each in refused} == {StorageRefusedError}
    assert len({str(each) for each in refused}) == 1
    assert events_of(store, "a") == [1]


def test_what_follows_a_conflict_is_refused_though_its_place_is_free(store: FaultyStore) -> None:
    store.journal.append(turn("resp_a")).result()

    appends = [
        store.journal.append(recorded("resp_a", FAILED, first=7)),
        store.journal.append(recorded("resp_a", PERSISTED, first=8)),
    ]

    assert [type(append.exception()) for append in appends] == [StorageConflictError] * 2
    assert store.reader.events("resp_a").result() == turn("resp_a")


def test_an_append_in_the_place_of_a_refused_one_is_a_new_try(store: FaultyStore) -> None:
    """So that a turn the full disk cut short can end as failed (storage_full) when there is room again."""
    started = recorded("resp_a", created("resp_a"), STARTED)
    gate = Gate(before(FULL))
    store.journal.append(started).result()
    store.recorder.faults.append(gate)
    lost = store.journal.append(recorded("resp_a", COMMITTED, first=3))
    gate.reached.wait()
    behind = store.journal.append(recorded("resp_a", PERSISTED, first=4))

    failed = store.journal.append(recorded("resp_a", FAILED, first=3))
    after = store.journal.append(recorded("resp_a", PERSISTED, first=4))
    gate.open.set()

    outcomes = [type(append.exception()) for append in (lost, behind, failed, after)]
    assert outcomes == [StorageRefusedError, StorageRefusedError, type(None), type(None)]
    assert store.reader.events("resp_a").result() == [
        *started,
        *recorded("resp_a", FAILED, PERSISTED, first=3),
    ]


def test_a_full_disk_loses_nothing_that_was_stored_and_takes_writes_when_there_is_room(
    store: FaultyStore,
) -> None:
    big = "x" * 100_000
    max_pages(store, 256)

    outcomes = [
        store.journal.append(recorded(f"resp_{number}", created(f"resp_{number}", text=big))).exception()
        for number in range(20)
    ]
    stored = [number for number, outcome in enumerate(outcomes) if outcome is None]
    readable = [len(store.reader.events(f"resp_{number}").result()) for number in range(20)]
    max_pages(store, 10_000)
    store.journal.append(turn("resp_late")).result()

    assert 1 < len(stored) < 12
    assert {getattr(each, "reason", None) for each in outcomes} == {None, "full"}
    assert readable == [1 if number in stored else 0 for number in range(20)]
    assert execute(store.path, "PRAGMA integrity_check") == [("ok",)]


def max_pages(store: FaultyStore, pages: int) -> None:
    """Give the file a quota, as a full disk does."""
    with store.recorder.datastore.get_connection(commit=True) as connection:
        connection.cursor().execute(f"PRAGMA max_page_count={pages}")


def test_a_file_that_became_read_only_refuses_writes_and_can_be_read(store: FaultyStore) -> None:
    store.journal.append(turn("resp_a")).result()
    with store.recorder.datastore.get_connection(commit=True) as connection:
        connection.cursor().execute("PRAGMA query_only=ON")

    refused = store.journal.append(turn("resp_b")).exception()

    assert isinstance(refused, StorageRefusedError)
    assert (refused.reason, events_of(store, "a", "b")) == ("read_only", [7, 0])


def test_a_transaction_that_a_failed_commit_left_open_is_ended(store: FaultyStore) -> None:
    with store.recorder.datastore.get_connection(commit=True) as connection:
        connection.cursor().execute("BEGIN IMMEDIATE")
        connection.cursor().execute("DELETE FROM stored_events")

    store.journal.append(turn("resp_a")).result()

    assert events_of(store, "a") == [7]


def test_a_write_lands_late_when_another_process_gives_the_file_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-044, G-050: the half of the store."""
    monkeypatch.setattr(recorder, "LOCK_TIMEOUT_S", 0.01)
    second_try = Gate()

    with opened_faulty(path) as store:
        store.recorder.faults += [works, second_try]
        with locked_by_another_process(path):
            appends = [store.journal.append(turn("resp_a")), store.journal.append(turn("resp_b"))]
            second_try.reached.wait()
            settled = [append.done() for append in appends]
            readable = events_of(store, "a", "b")
        second_try.open.set()
        for append in appends:
            append.result()
        landed = events_of(store, "a", "b")

    assert (settled, readable, landed) == ([False, False], [0, 0], [7, 7])

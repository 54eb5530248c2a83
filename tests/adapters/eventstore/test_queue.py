"""The queue of a store that does not keep up: bounded by a promise to the app, never by dropping."""

from pathlib import Path
from threading import Thread

import pytest

from tests.adapters.eventstore.faults import LOCKED, FaultyRecorder, FaultyStore, Gate, before, works
from tests.adapters.eventstore.locker import locked_by_another_process
from tests.adapters.eventstore.stories import created, opened, recorded, turn
from tests.listed import listed
from turnlog.adapters.eventstore import journal as journal_module
from turnlog.adapters.eventstore import recorder
from turnlog.adapters.eventstore.journal import SqliteEventJournal
from turnlog.adapters.eventstore.recorder import EventDatastore
from turnlog.domain.errors import StorageError


def make_journal(
    path: Path, *, max_queued_bytes: int = 10_000, close_grace_s: float = 0.0
) -> tuple[SqliteEventJournal, FaultyRecorder]:
    recorder = FaultyRecorder(EventDatastore(path))
    recorder.create_table()
    journal = SqliteEventJournal(recorder, max_queued_bytes=max_queued_bytes, close_grace_s=close_grace_s)
    return journal, recorder


def test_new_turns_are_not_wanted_while_too_much_is_queued_and_nothing_is_dropped(path: Path) -> None:
    journal, recorder = make_journal(path)
    gate = Gate()
    recorder.faults.append(gate)
    at_first = journal.accepts_new

    appends = [
        journal.append(recorded(f"resp_{number}", created(f"resp_{number}", text="x" * 4000)))
        for number in range(3)
    ]
    behind = (journal.accepts_new, journal.queued_bytes > 12_000)
    gate.open.set()
    for append in appends:
        append.result()
    caught_up = (journal.accepts_new, journal.queued_bytes)
    journal.close()

    assert (at_first, behind, caught_up) == (True, (False, True), (True, 0))


def test_what_is_being_written_counts_until_it_has_settled(faulty: FaultyStore) -> None:
    gate = Gate()
    faulty.recorder.faults.append(gate)
    idle = faulty.journal.oldest_queued_s()

    append = faulty.journal.append(turn("resp_a"))
    gate.reached.wait()
    ages = [faulty.journal.oldest_queued_s() for _ in range(2)]
    queued_bytes = faulty.journal.queued_bytes
    gate.open.set()
    append.result()

    assert 0.0 == idle < ages[0] < ages[1]
    assert queued_bytes > 0
    assert (faulty.journal.queued_bytes, faulty.journal.oldest_queued_s()) == (0, 0.0)


def test_appending_does_not_wait_for_a_writer_that_hangs(faulty: FaultyStore) -> None:
    gate = Gate()
    faulty.recorder.faults.append(gate)
    faulty.journal.append(turn("resp_a"))
    gate.reached.wait()

    appends = [faulty.journal.append(turn(f"resp_{number}")) for number in range(2000)]
    pending = not any(append.done() for append in appends)
    gate.open.set()
    for append in appends:
        append.result()

    assert pending
    assert len(faulty.reader.events("resp_1999").result()) == 7


def test_closing_waits_for_a_lock_that_goes_away_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "RETRY_PAUSE_S", 0.001)
    journal, recorder = make_journal(path, close_grace_s=60)
    gate = Gate(before(LOCKED))
    recorder.faults += [before(LOCKED), gate]
    appends = [journal.append(turn(f"resp_{number}")) for number in range(3)]
    gate.reached.wait()

    closing = Thread(target=journal.close)
    closing.start()
    gate.open.set()
    closing.join()

    assert [append.exception() for append in appends] == [None] * 3
    with opened(path) as store:
        assert len(listed(store.reader)) == 3


def test_closing_gives_up_a_lock_that_stays_and_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LOCK_TIMEOUT_S", 0.01)
    journal, _ = make_journal(path)

    with locked_by_another_process(path):
        appends = [journal.append(turn(f"resp_{number}")) for number in range(3)]
        journal.close()

    for append in appends:
        with pytest.raises(StorageError, match="was closed before the events were written"):
            append.result()
    with opened(path) as store:
        assert listed(store.reader) == []


def test_closing_leaves_a_writer_that_hangs_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "LOCK_TIMEOUT_S", -1)
    journal, recorder = make_journal(path)
    gate = Gate()
    recorder.faults.append(gate)
    append = journal.append(turn("resp_a"))
    gate.reached.wait()

    journal.close()

    with pytest.raises(StorageError, match="was closed before the events were written"):
        append.result()
    gate.open.set()


def test_a_journal_may_be_closed_twice(path: Path) -> None:
    journal, recorder = make_journal(path)
    recorder.faults.append(works)

    journal.close()
    journal.close()

    with pytest.raises(StorageError, match="The event store is closed"):
        journal.append(turn("resp_a")).result()

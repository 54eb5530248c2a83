"""A backup is whole, for its owner only, and holds up no turn."""

import stat
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from tests.adapters.eventstore.stories import execute, opened, turn
from turnlog.adapters.eventstore.backup import PAGES_PER_STEP
from turnlog.adapters.eventstore.journal import SqliteEventJournal
from turnlog.adapters.eventstore.store import open_reader, open_sqlite
from turnlog.domain.errors import StorageError

MOST_S = 30.0


def test_a_backup_has_what_was_stored_and_is_served_like_any_log(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with opened(path) as (_, journal, _):
        journal.append(turn("resp_1")).result(MOST_S)
        size_bytes = journal.backup(copy).result(MOST_S)
        journal.append(turn("resp_2")).result(MOST_S)

    assert size_bytes == copy.stat().st_size
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir() if "copy" in each.name) == ["copy.db"]
    with opened(copy) as (_, _, reader):
        assert reader.events("resp_1").result(MOST_S) == turn("resp_1")
        assert reader.events("resp_2").result(MOST_S) == []


def test_turns_are_written_while_a_backup_goes_on(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass: a copy by another connection would begin anew with each of them."""
    copy = tmp_path / "copy.db"
    monkeypatch.setattr("turnlog.adapters.eventstore.backup.PAGES_PER_STEP", 4)
    with opened(path) as (_, journal, _):
        for number in range(40):
            journal.append(turn(f"resp_{number:03}")).result(MOST_S)
        done = journal.backup(copy)
        written: list[Future[None]] = []
        while not done.done() and len(written) < 500:
            written.append(journal.append(turn(f"resp_{len(written) + 100:03}")))
            written[-1].result(MOST_S)
        done.result(MOST_S)

    assert written, "the backup was done before anything was written"
    with closing(open_reader(copy)) as reader:
        ids = reader.ids_beginning("resp_", limit=1_000).result(MOST_S)
        copied = [reader.events(each).result(MOST_S) for each in ids]
    # Whole turns, without a gap: those of one moment.
    assert ids[:40] == [f"resp_{number:03}" for number in range(40)]
    assert ids[40:] == [f"resp_{number:03}" for number in range(100, 100 + len(ids) - 40)]
    assert copied == [turn(each) for each in ids]


def test_a_backup_never_replaces_a_file(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with opened(path) as (_, journal, _):
        for taken in (copy, tmp_path / "copy.db.part"):
            taken.write_text("mine")
            with pytest.raises(StorageError, match=f"^'{taken}' exists"):
                journal.backup(copy).result(MOST_S)
            assert taken.read_text() == "mine"
            taken.unlink()
        with pytest.raises(StorageError, match="cannot be written: No such file or directory"):
            journal.backup(tmp_path / "nowhere" / "copy.db").result(MOST_S)
        journal.append(turn("resp_1")).result(MOST_S)


def test_a_backup_ends_with_its_journal(path: Path, tmp_path: Path) -> None:
    """It leaves nothing, and what was to be written is written."""
    copy = tmp_path / "copy.db"
    journal, reader = open_sqlite(path)
    execute(path, "CREATE TABLE padding AS SELECT zeroblob(40000000) AS bytes")
    assert path.stat().st_size > 10 * PAGES_PER_STEP * 4096
    done = journal.backup(copy)
    stored = journal.append(turn("resp_1"))
    reader.close()
    journal.close()

    stored.result(MOST_S)
    with pytest.raises(StorageError, match="broken off"):
        done.result(MOST_S)
    assert not copy.exists()
    assert isinstance(journal, SqliteEventJournal)
    assert not (tmp_path / "copy.db.part").exists()

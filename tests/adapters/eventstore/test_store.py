"""A store opens under any name and says in one sentence why it does not."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from eventsourcing.persistence import OperationalError

from tests.adapters.eventstore.stories import FAILED, created, execute, opened, recorded, turn, write_locked
from tests.listed import listed
from turnlog.adapters.eventstore import identity, readmodel
from turnlog.adapters.eventstore import store as store_module
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.recorder import EventDatastore
from turnlog.adapters.eventstore.store import has_wal_reset_bug, open_reader, open_sqlite, vacuum
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import StorageError

NAMES = [
    "with space.db",
    "what?.db",
    "what?mode=memory",
    "a#b.db",
    "50%25.db",
    ":memory:",
    "file:x",
    "é😀.db",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_may_have_any_name_in_any_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name / name

    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
        while_open = store.reader.events("resp_a").result()
    reader = open_reader(path)
    when_closed = reader.events("resp_a").result()
    reader.close()

    assert (while_open, when_closed) == (turn("resp_a"), turn("resp_a"))
    assert path.is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)

    with opened(Path(name)) as store:
        store.journal.append(turn("resp_a")).result()

    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_closing_leaves_one_file(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
        listed(store.reader)

    assert list(path.parent.iterdir()) == [path]


def test_a_path_below_a_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "turnlog.db"

    with pytest.raises(StorageError, match=f"^The event store '{path}' could not be opened: "):
        open_sqlite(path)


def test_a_folder_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=f"^The event store '{tmp_path}' could not be opened: unable to open"
    ):
        open_sqlite(tmp_path)


def test_a_file_that_is_not_a_store_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"garbage " * 1000)

    for opener in (open_sqlite, open_reader):
        with pytest.raises(
            StorageError, match=f"^The event store '{path}' could not be opened: file is not a data"
        ):
            opener(path)

    assert path.read_bytes() == b"garbage " * 1000
    assert list(path.parent.iterdir()) == [path]


def test_reading_creates_no_file(path: Path) -> None:
    with pytest.raises(StorageError, match=f"^No event store at '{path}'.$"):
        open_reader(path)

    assert not path.exists()


def test_a_store_says_what_it_is(path: Path) -> None:
    """Also one of version 0.1, which did not, once it was served."""
    with opened(path):
        pass
    execute(path, "PRAGMA application_id=0")
    execute(path, "PRAGMA user_version=0")
    with opened(path):
        pass

    with closing(sqlite3.connect(path)) as database:
        [application_id] = database.execute("PRAGMA application_id").fetchone()
        [form] = database.execute("PRAGMA user_version").fetchone()
    assert application_id.to_bytes(4, "big") == b"tlog"
    assert form == identity.FORM


def told(path: Path) -> list[str]:
    """What a database has, and says of itself."""
    with closing(sqlite3.connect(path)) as database:
        told = [
            str(database.execute(f"PRAGMA {name}").fetchone()) for name in ("application_id", "user_version")
        ]
        return [*database.iterdump(), *told]


@pytest.mark.parametrize("foreign", ["CREATE TABLE recipes (name TEXT)", "PRAGMA application_id=1196444487"])
def test_a_database_of_something_else_is_left_as_it_is(path: Path, foreign: str) -> None:
    execute(path, foreign)
    before = told(path)

    for opener in (open_sqlite, open_reader):
        with pytest.raises(StorageError, match=f"^'{path}' is a database of another program.$"):
            opener(path)

    assert told(path) == before


@pytest.mark.parametrize(
    "change",
    [
        f"PRAGMA user_version={identity.FORM + 1}",
        f"UPDATE readmodel_version SET version = {1000 * (readmodel.FORM + 1)}",
    ],
)
def test_a_store_of_a_newer_turnlog_is_left_as_it_is(path: Path, change: str) -> None:
    """Its tables are not made again in the form of this one."""
    with opened(path):
        pass
    execute(path, change)

    for opener in (open_sqlite, open_reader, store_module.reindex):
        with pytest.raises(StorageError, match="was written by a newer version of turnlog"):
            opener(path)


@pytest.mark.parametrize(
    "change", ["UPDATE readmodel_version SET version = 99", "DELETE FROM readmodel_version"]
)
def test_rows_of_another_version_are_not_read(path: Path, change: str) -> None:
    with opened(path):
        pass
    execute(path, change)

    with pytest.raises(StorageError, match=f"^The event store '{path}' was written by another version"):
        open_reader(path)


def test_a_damaged_file_is_not_opened(path: Path) -> None:
    with opened(path) as store:
        for number in range(200):
            store.journal.append(turn(f"resp_{number}"))
        store.journal.append([]).result()
    content = bytearray(path.read_bytes())
    content[20 * 4096 : 20 * 4096 + 100] = bytes(100)
    path.write_bytes(content)

    with pytest.raises(
        StorageError, match=f"^The event store '{path}' is damaged: .* Restore it from a backup"
    ):
        open_sqlite(path)


def test_a_large_file_is_opened_without_looking_for_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as store:
        for number in range(200):
            store.journal.append(turn(f"resp_{number}"))
        store.journal.append([]).result()
    with closing(sqlite3.connect(path)) as connection:
        # An index that a list does not read.
        wanted = "SELECT rootpage FROM sqlite_master WHERE name = 'responses_of_body'"
        start = 4096 * (connection.execute(wanted).fetchone()[0] - 1)
    content = bytearray(path.read_bytes())
    content[start : start + 100] = bytes(100)
    path.write_bytes(content)
    monkeypatch.setattr(store_module, "CHECKED_BYTES", 100_000)

    with opened(path) as store:
        assert len(store.reader.find(AuditFilter()).result().rows) == 20


def test_a_store_in_memory_keeps_its_events_until_it_is_closed() -> None:
    with opened(None) as store, opened(None) as other:
        appends = [store.journal.append(turn(f"resp_{number}")) for number in range(100)]
        reads = [store.reader.events("resp_0") for _ in range(100)]
        for append in appends:
            append.result()
        there = (len(listed(store.reader)), {len(read.result()) for read in reads} <= {0, 7})
        elsewhere = listed(other.reader)
        swept = store.journal.expire(2001, limit=10_000).result()
        other.reader.ping().result()
        same = store.reader.same_file()

    assert (there, elsewhere, swept, same) == ((100, True), [], 800, True)


def test_what_is_queued_in_memory_is_stored_when_it_is_closed() -> None:
    with opened(None) as store:
        appends = [store.journal.append(turn(f"resp_{number}")) for number in range(100)]

    assert [append.exception() for append in appends] == [None] * 100


def test_a_vacuum_gives_back_the_room_of_what_was_removed_and_keeps_the_order(path: Path) -> None:
    order = "SELECT rowid, originator_id, originator_version FROM stored_events ORDER BY rowid"
    with opened(path) as store:
        for number in range(50):
            large = created(f"resp_{number}", text="x" * 20_000)
            store.journal.append(recorded(f"resp_{number}", large, FAILED))
        store.journal.append([]).result()
        while store.journal.expire(2001).result():
            pass
    before = (path.stat().st_size, execute(path, order))

    freed = vacuum(path)

    assert (path.stat().st_size + freed, execute(path, order)) == before
    assert freed > 900_000
    with opened(path) as store:
        assert len(listed(store.reader)) == 50


def test_a_store_with_a_server_is_not_vacuumed(path: Path) -> None:
    in_use = f"^The event store '{path}' is in use by process"

    with opened(path), closing(StoreLock(path)), pytest.raises(StorageError, match=in_use):
        vacuum(path)


def test_what_is_not_there_is_not_vacuumed(path: Path) -> None:
    with pytest.raises(StorageError, match=f"^No event store at '{path}'"):
        vacuum(path)


@pytest.mark.parametrize(
    ("version", "bug"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 9), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_the_versions_with_the_wal_bug_are_known(version: tuple[int, ...], bug: bool) -> None:
    assert has_wal_reset_bug(version) == bug


def test_a_command_reads_while_the_server_writes(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
        reader = open_reader(path)
        with write_locked(path):
            before = reader.events("resp_b").result()
        store.journal.append(turn("resp_b")).result()
        after = reader.events("resp_b").result()
        reader.close()

    assert (before, after) == ([], turn("resp_b"))


def test_a_connection_for_reading_cannot_write(path: Path) -> None:
    with opened(path):
        pass
    datastore = EventDatastore(path, read_only=True)

    with (
        pytest.raises(OperationalError, match="attempt to write a readonly database"),
        datastore.transaction(commit=True) as cursor,
    ):
        cursor.execute("DELETE FROM stored_events")
    datastore.close()

"""A store opens under any name and says in one sentence why it does not."""

from pathlib import Path

import pytest
from eventsourcing.persistence import OperationalError

from adapters.eventstore.sqlite import EventDatastore
from adapters.eventstore.store import open_reader, open_sqlite
from domain.errors import StorageError
from tests.adapters.eventstore.stories import execute, opened, turn, write_locked

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
        store.reader.rows().result()

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
    with pytest.raises(StorageError, match=f"^There is no event store at '{path}'.$"):
        open_reader(path)

    assert not path.exists()


def test_a_database_of_something_else_is_not_read(path: Path) -> None:
    execute(path, "CREATE TABLE recipes (name TEXT)")

    with pytest.raises(StorageError, match=f"^The event store '{path}' could not be opened: no such table"):
        open_reader(path)


@pytest.mark.parametrize(
    "change", ["UPDATE readmodel_version SET version = 99", "DELETE FROM readmodel_version"]
)
def test_rows_of_another_version_are_not_read(path: Path, change: str) -> None:
    with opened(path):
        pass
    execute(path, change)

    with pytest.raises(StorageError, match=f"^The event store '{path}' was written by another version"):
        open_reader(path)


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

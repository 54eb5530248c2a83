"""Opens the store of a file: for a server, which writes it, or for a command that only reads."""

import logging
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

from turnlog.adapters.eventstore import identity, readmodel, textindex
from turnlog.adapters.eventstore.journal import MAX_QUEUED_BYTES, SqliteEventJournal
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.place import close_store, prepare
from turnlog.adapters.eventstore.reader import SqliteEventReader
from turnlog.adapters.eventstore.readmodel import Progress
from turnlog.adapters.eventstore.recorder import EventDatastore, EventRecorder, storage_errors
from turnlog.domain.errors import StorageError

log = logging.getLogger("turnlog")

CHECKED_BYTES = 256 * 2**20
"""Up to this size a file is checked for damage when it is opened; a larger one would delay the start."""

MakeRecorder = Callable[[EventDatastore], EventRecorder]


def open_sqlite(
    path: Path,
    *,
    max_queued_bytes: int = MAX_QUEUED_BYTES,
    make_recorder: MakeRecorder = EventRecorder,
) -> tuple[SqliteEventJournal, SqliteEventReader]:
    """Open the store, creating file and folders where they are missing.

    Close the reader first and the journal last, so that it folds the write-ahead log into the file.

    Args:
        max_queued_bytes: from here on the journal does not want new turns (`accepts_new`).
        make_recorder: makes what the journal writes with, such as a recorder that fails on command.

    Raises:
        StorageError: the path cannot be written, or what is there is not a store or damaged.
    """
    with _opening(path), ExitStack() as undo:
        prepare(path)
        recorder = make_recorder(_datastore(path, undo))
        # Opens the one connection the writer will use. Only here may that fail: the library's pool stays
        # locked for ever once it could not open a connection for a writer.
        _check(recorder, path)
        recorder.create_table()
        reading = EventRecorder(_datastore(path, undo, read_only=True))
        undo.pop_all()
    if has_wal_reset_bug(sqlite3.sqlite_version_info):
        log.warning(
            "[store] SQLite %s can corrupt a database that two processes write (fixed in 3.51.3): "
            "do not let another process write '%s'",
            sqlite3.sqlite_version,
            path,
        )
    return SqliteEventJournal(recorder, max_queued_bytes=max_queued_bytes), SqliteEventReader(reading)


def open_memory(
    *, max_queued_bytes: int = MAX_QUEUED_BYTES, make_recorder: MakeRecorder = EventRecorder
) -> tuple[SqliteEventJournal, SqliteEventReader]:
    """Open a new store in memory, which is gone when it is closed. Close the reader first, here too.

    Reading and writing take turns: a stuck write blocks the readers, which a file does not.
    """
    recorder = make_recorder(EventDatastore(None))
    recorder.create_table()
    return SqliteEventJournal(recorder, max_queued_bytes=max_queued_bytes), SqliteEventReader(recorder)


def open_reader(path: Path) -> SqliteEventReader:
    """Open an existing store for reading only: no store is created and no server is disturbed.

    Raises:
        StorageError: there is no such file, it is not a store, or its read model is of another version.
    """
    _require(path)
    close_store(path)
    with _opening(path), ExitStack() as undo:
        recorder = EventRecorder(_datastore(path, undo, read_only=True))
        with recorder.datastore.transaction(commit=False) as cursor:
            identity.check(cursor, path)
            version = readmodel.version(cursor)
        if version != readmodel.VERSION:
            raise StorageError(
                f"The event store '{path}' was written by another version of turnlog. "
                "Start this version's server on it once."
            )
        undo.pop_all()
    return SqliteEventReader(recorder, deadlines=False)


def vacuum(path: Path) -> int:
    """Give back the disk space that removed content took; how many bytes that was.

    Needs as much free space as the file takes, and no server on it.

    Raises:
        StorageError: a server has the store, there is none, or the disk has not enough room.
    """
    _require(path)
    with closing(StoreLock(path)), storage_errors(f"The event store '{path}' could not be vacuumed"):
        before = path.stat().st_size
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            textindex.optimize(connection)
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return before - path.stat().st_size


def reindex(path: Path, progress: Progress | None = None) -> int:
    """Make the read model and the text index again from the log; from how many events.

    All or nothing: when it fails, the rows are those that were there.

    Raises:
        StorageError: a server has the store, there is none, or an event of the log cannot be read.
    """
    _require(path)
    failure = f"The event store '{path}' could not be reindexed"
    with closing(StoreLock(path)), storage_errors(failure), ExitStack() as undo:
        recorder = EventRecorder(_datastore(path, undo))
        recorder.create_table()
        return recorder.rebuild_read_model(progress)


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite can corrupt a WAL file that two processes write: 3.7.0 … 3.51.2, some mended."""
    mended = version >= (3, 51, 3) or any(
        version[:2] == line[:2] and version >= line for line in ((3, 44, 6), (3, 50, 7))
    )
    return version >= (3, 7) and not mended


def _check(recorder: EventRecorder, path: Path) -> None:
    """Look for damage.

    Raises:
        StorageError: there is some.
    """
    if path.is_file() and path.stat().st_size > CHECKED_BYTES:
        log.info("[store] '%s' is too large for an integrity check at startup", path)
        return
    with recorder.datastore.transaction(commit=False) as cursor:
        cursor.execute("PRAGMA quick_check(1)")
        finding = str(cursor.fetchone()[0]).splitlines()[-1]
    if finding != "ok":
        raise StorageError(f"The event store '{path}' is damaged: {finding}. Restore it from a backup.")


def _require(path: Path) -> None:
    if not path.is_file():
        raise StorageError(f"No event store at '{path}'.")


def _opening(path: Path) -> AbstractContextManager[None]:
    return storage_errors(f"The event store '{path}' could not be opened")


def _datastore(path: Path, undo: ExitStack, *, read_only: bool = False) -> EventDatastore:
    """The file's datastore, which `undo` closes."""
    datastore = EventDatastore(path, read_only=read_only)
    undo.callback(datastore.close)
    return datastore

"""Opens the store of a file: for a server, which writes it, or for a command that only reads."""

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from adapters.eventstore import readmodel
from adapters.eventstore.journal import SqliteEventJournal
from adapters.eventstore.reader import SqliteEventReader
from adapters.eventstore.sqlite import EventDatastore, EventRecorder, storage_errors
from domain.errors import StorageError


def open_sqlite(path: Path) -> tuple[SqliteEventJournal, SqliteEventReader]:
    """Open the store, creating file and folders where they are missing.

    Close the reader first and the journal last, so that it folds the write-ahead log into the file.

    Raises:
        StorageError: the path cannot be written, or what is there is not a store.
    """
    with _opening(path), ExitStack() as undo:
        path.parent.mkdir(parents=True, exist_ok=True)
        recorder = _recorder(path, undo)
        # Opens the one connection the writer will use. Only here may that fail: the library's pool stays
        # locked for ever once it could not open a connection for a writer.
        recorder.create_table()
        reading = _recorder(path, undo, read_only=True)
        undo.pop_all()
    return SqliteEventJournal(recorder), SqliteEventReader(reading)


def open_reader(path: Path) -> SqliteEventReader:
    """Open an existing store for reading only: no store is created and no server is disturbed.

    Raises:
        StorageError: there is no such file, it is not a store, or its read model is of another version.
    """
    if not path.is_file():
        raise StorageError(f"There is no event store at '{path}'.")
    with _opening(path), ExitStack() as undo:
        recorder = _recorder(path, undo, read_only=True)
        with recorder.datastore.transaction(commit=False) as cursor:
            version = readmodel.version(cursor)
        if version != readmodel.VERSION:
            raise StorageError(
                f"The event store '{path}' was written by another version of turnlog. "
                "Start this version's server on it once."
            )
        undo.pop_all()
    return SqliteEventReader(recorder)


def _opening(path: Path) -> AbstractContextManager[None]:
    return storage_errors(f"The event store '{path}' could not be opened")


def _recorder(path: Path, undo: ExitStack, *, read_only: bool = False) -> EventRecorder:
    """A recorder for the file, which `undo` closes."""
    datastore = EventDatastore(path, read_only=read_only)
    undo.callback(datastore.close)
    return EventRecorder(datastore)

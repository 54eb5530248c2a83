"""The library's SQLite recorder made strict: PRAGMAs that keep a promise, no gap, the read model with it."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from eventsourcing.domain import EventSourcingError
from eventsourcing.persistence import IntegrityError, StoredEvent
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from turnlog.adapters.eventstore import readmodel
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.domain.errors import StorageError

LOCK_TIMEOUT_S = 2
"""How long SQLite waits for a lock. The journal waits longer, but looks up in between."""

_PRAGMAS = (
    # A turn that was acknowledged survives a power cut. On macOS only `fullfsync` reaches the disk;
    # elsewhere it changes nothing.
    "PRAGMA synchronous=FULL",
    "PRAGMA fullfsync=ON",
    # What is deleted is overwritten.
    "PRAGMA secure_delete=ON",
    # In kilobytes: the indexes that a log of many thousand turns writes and searches at random places.
    "PRAGMA cache_size=-16384",
)


@contextmanager
def storage_errors(failure: str) -> Iterator[None]:
    """Let whatever the store raises be a `StorageError` whose sentence begins with `failure`."""
    try:
        yield
    # `sqlite3.Error` too: the library lets those pass that are raised while it opens a connection.
    except (EventSourcingError, sqlite3.Error, OSError) as error:
        raise StorageError(f"{failure}: {error}") from error


class EventPool(SQLiteConnectionPool):
    """Connections to one database, each with its PRAGMAs."""

    def __init__(self, uri: str, *, read_only: bool) -> None:
        super().__init__(db_name=uri, lock_timeout=LOCK_TIMEOUT_S)
        self._read_only = read_only

    def put_connection(self, conn: SQLiteConnection) -> None:
        """Take the connection back, without the transaction that a failed COMMIT leaves open."""
        with suppress(sqlite3.Error):
            conn.rollback()
        super().put_connection(conn)

    def _create_connection(self) -> SQLiteConnection:
        # Not the library's, which keeps one prepared statement: an append has a dozen different ones, and
        # preparing them took most of its time.
        connection = sqlite3.connect(
            self.db_name, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False, uri=True
        )
        connection.row_factory = sqlite3.Row
        for pragma in (*_PRAGMAS, *([] if self._read_only else ["PRAGMA journal_mode=WAL"])):
            connection.execute(pragma)
        return SQLiteConnection(connection, max_age=None)


class EventDatastore(SQLiteDatastore):
    """The database of a store, for writing or for reading only.

    `path` is None if it is in memory; `uri` is its name for SQLite.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        # The library makes a pool of its own class here, which never opens a connection.
        super().__init__("", originator_id_type="text")
        self.path = path
        self.read_only = read_only
        self.uri = _uri(path, read_only=read_only)
        self.pool = EventPool(self.uri, read_only=read_only)


def _uri(path: Path | None, *, read_only: bool) -> str:
    """The database's name for SQLite. Read-only connections never create the file."""
    if path is None:
        return f"file:turnlog-{token_hex(8)}?mode=memory&cache=shared"
    # A URI escapes what would otherwise be read as a query, a fragment or `:memory:`.
    return f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"


class EventRecorder(SQLiteApplicationRecorder):
    """Inserts and selects the events of a store, and keeps its read model."""

    datastore: EventDatastore

    def __init__(self, datastore: EventDatastore) -> None:
        super().__init__(datastore)
        self._mapper = EventMapper()
        # One statement, and a write: a transaction that read first could not wait for another's lock.
        self.insert_events_statement = """
            INSERT INTO stored_events SELECT :response_id, :version, :topic, :state
            WHERE :version = 1 + coalesce(
                (SELECT max(originator_version) FROM stored_events WHERE originator_id = :response_id), 0
            )
        """

    def empty_write_ahead_log(self) -> bool:
        """Move what the write-ahead log holds into the file; false, at once, if someone is in the way."""
        with self.datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            cursor.execute("PRAGMA busy_timeout=0")
            try:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return not cursor.fetchone()["busy"]
            finally:
                cursor.execute(f"PRAGMA busy_timeout={1000 * LOCK_TIMEOUT_S}")

    def rebuild_read_model(self, progress: readmodel.Progress | None = None) -> int:
        """Make the read model again from the log; from how many events.

        Raises:
            StorageError: an event of the log cannot be read.
        """
        with self.datastore.transaction(commit=True) as cursor:
            return readmodel.rebuild(cursor, self._mapper, progress)

    def _create_table(self, c: SQLiteCursor) -> None:
        super()._create_table(c)
        readmodel.bring_up_to_date(c, self._mapper)

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **_: Any
    ) -> Sequence[int] | None:
        """Insert the events and change the read model, all or nothing.

        Raises:
            IntegrityError: a version is not the one after the last of its response.
            StorageError: an event could not be read back.
        """
        positions = []
        for stored in stored_events:
            c.execute(
                self.insert_events_statement,
                {
                    "response_id": stored.originator_id,
                    "version": stored.originator_version,
                    "topic": stored.topic,
                    "state": stored.state,
                },
            )
            if c.sqlite_cursor.rowcount == 0:
                place = f"version {stored.originator_version} of response '{stored.originator_id}'"
                raise IntegrityError(f"{place} does not follow the last one stored")
            positions.append(c.lastrowid)
            # From the very bytes: what could not be read back is refused now, not found out later.
            readmodel.record(c, self._mapper, self._mapper.to_domain_event(stored))
        return positions

"""`eventsourcing`'s SQLite recorder, made durable and gapless; the read model changes with the events."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from eventsourcing.domain import EventSourcingError
from eventsourcing.persistence import IntegrityError, Notification, StoredEvent
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from turnlog.adapters.eventstore import identity, readmodel, textindex
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.readmodel import Progress
from turnlog.adapters.eventstore.schema import VERSION_TABLE
from turnlog.domain.errors import StorageError

LOCK_TIMEOUT_S = 2
"""How long SQLite waits for a lock. The journal waits longer, by trying again."""

EVENTS_PER_CHUNK = 500
"""Events read from the log at a time: some hundred kilobytes as a rule."""

BYTES_PER_CHUNK = 4 * 2**20
"""After which a chunk ends all the same: one event may have some megabytes."""

# SQLite knows the length of what it does not read.
_LENGTHS = """
    SELECT rowid, length(state) FROM stored_events
    WHERE rowid > :after AND rowid <= :until ORDER BY rowid LIMIT :limit
"""

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


# One statement, and a write: a transaction that read first could not wait for another's lock.
_INSERT = """
    INSERT INTO stored_events SELECT :response_id, :version, :topic, :state
    WHERE :version = 1 + coalesce(
        (SELECT max(originator_version) FROM stored_events WHERE originator_id = :response_id), 0
    )
"""


@contextmanager
def storage_errors(failure: str) -> Iterator[None]:
    """Raise every error of the store as a `StorageError` whose sentence begins with `failure`."""
    try:
        yield
    # `sqlite3.Error` too: `eventsourcing` does not translate those raised while it opens a connection. By the
    # last two SQLite's module refuses a parameter: an integer of more than 64 bits, half a surrogate pair.
    except (EventSourcingError, sqlite3.Error, OSError, OverflowError, UnicodeEncodeError) as error:
        raise StorageError(f"{failure}: {error}") from error


class EventPool(SQLiteConnectionPool):
    """Connections to one database, each with its PRAGMAs."""

    def __init__(self, uri: str, *, read_only: bool) -> None:
        super().__init__(db_name=uri, lock_timeout=LOCK_TIMEOUT_S)
        self._read_only = read_only

    def put_connection(self, conn: SQLiteConnection) -> None:
        """Return the connection, without the transaction that a failed COMMIT leaves open."""
        with suppress(sqlite3.Error):
            conn.rollback()
        super().put_connection(conn)

    def _create_connection(self) -> SQLiteConnection:
        # The connection `eventsourcing` makes caches one prepared statement: an append runs a dozen different
        # ones, and preparing them took most of its time.
        connection = sqlite3.connect(
            self.db_name, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False, uri=True
        )
        connection.row_factory = sqlite3.Row
        for pragma in (*_PRAGMAS, *([] if self._read_only else ["PRAGMA journal_mode=WAL"])):
            connection.execute(pragma)
        return SQLiteConnection(connection, max_age=None)


class EventDatastore(SQLiteDatastore):
    """The database of a store, for writing or for reading only. `path` is None if it is in memory."""

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        # This makes a pool of another class, which never opens a connection.
        super().__init__("", originator_id_type="text")
        self.path = path
        self.read_only = read_only
        self.pool = EventPool(_uri(path, read_only=read_only), read_only=read_only)


def _uri(path: Path | None, *, read_only: bool) -> str:
    """The database's name for SQLite. Read-only connections never create the file."""
    if path is None:
        return f"file:turnlog-{token_hex(8)}?mode=memory&cache=shared"
    # A URI escapes what would otherwise be read as a query, a fragment or `:memory:`.
    return f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"


class EventRecorder(SQLiteApplicationRecorder):
    """Inserts the events of a store with their rows of the read model, and reads the log."""

    datastore: EventDatastore

    def __init__(self, datastore: EventDatastore) -> None:
        super().__init__(datastore)
        self._mapper = EventMapper()

    def create_table(self) -> None:
        """Create the tables that are missing, and rebuild a read model of another version from the log.

        Raises:
            StorageError: it is no store, or a newer one; an event of the log cannot be read; or this SQLite
                cannot search text.
        """
        with self.datastore.transaction(commit=True) as cursor:
            identity.check(cursor, self.datastore.path)
            identity.mark(cursor)
            for statement in (*self.create_table_statements, VERSION_TABLE):
                cursor.execute(statement)
            textindex.require_full_text(cursor)
            up_to_date = readmodel.version(cursor) == readmodel.VERSION
        if not up_to_date:
            self.rebuild_read_model()

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int]:
        """Insert the events and update the read model in a transaction of their own; see `insert`."""
        with self.datastore.transaction(commit=True) as cursor:
            return self.insert(cursor, stored_events)

    def insert(self, cursor: SQLiteCursor, stored_events: Sequence[StoredEvent]) -> Sequence[int]:
        """Insert the events and update the read model in the transaction of `cursor`; the events' positions.

        Raises:
            IntegrityError: a version is not the one after the last of its response.
            StorageError: an event could not be read back.
        """
        positions = []
        for stored in stored_events:
            cursor.execute(
                _INSERT,
                {
                    "response_id": stored.originator_id,
                    "version": stored.originator_version,
                    "topic": stored.topic,
                    "state": stored.state,
                },
            )
            if cursor.sqlite_cursor.rowcount == 0:
                place = f"version {stored.originator_version} of response '{stored.originator_id}'"
                raise IntegrityError(f"{place} does not follow the last one stored")
            positions.append(cursor.lastrowid)
            # Decoded from the very bytes: an event that could not be read back is refused now.
            readmodel.record(cursor, self._mapper, stored)
        return positions

    def last_position(self) -> int:
        """The position of the newest event in the log; 0 if the log is empty."""
        return self.max_notification_id() or 0

    def log(self, *, after: int = 0, until: int) -> Iterator[Sequence[Notification]]:
        """The events from behind position `after` up to position `until`, in chunks, in the order stored."""
        while after < until:
            last = self._end_of_chunk(after, until)
            chunk = self.select_notifications(after, EVENTS_PER_CHUNK, last, inclusive_of_start=False)
            yield chunk
            after = chunk[-1].id

    def _end_of_chunk(self, after: int, until: int) -> int:
        """The position of the last event of a chunk."""
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(_LENGTHS, {"after": after, "until": until, "limit": EVENTS_PER_CHUNK})
            last, size_bytes = until, 0
            for position, length in cursor.fetchall():
                size_bytes += length
                if size_bytes > BYTES_PER_CHUNK and last != until:
                    break
                last = position
        return last

    def rebuild_read_model(self, progress: Progress | None = None) -> int:
        """Rebuild the read model from the log, all or nothing; the number of events read.

        Nothing else may write to the store meanwhile.

        Raises:
            StorageError: an event of the log cannot be read.
        """
        done, last = 0, self.last_position()
        with self.datastore.transaction(commit=True) as cursor:
            readmodel.recreate(cursor)
            for chunk in self.log(until=last):
                for stored in chunk:
                    readmodel.record(cursor, self._mapper, stored)
                done += len(chunk)
                if progress:
                    progress(done, last)
        return done

    def empty_write_ahead_log(self) -> bool:
        """Move the write-ahead log into the file; false, at once, if another connection is in the way."""
        with self.datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            cursor.execute("PRAGMA busy_timeout=0")
            try:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return not cursor.fetchone()["busy"]
            finally:
                cursor.execute(f"PRAGMA busy_timeout={1000 * LOCK_TIMEOUT_S}")

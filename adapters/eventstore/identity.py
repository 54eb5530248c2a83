"""What a store's file says of itself: whose it is, and in which form."""

from pathlib import Path
from typing import Final

from eventsourcing.sqlite import SQLiteCursor

from turnlog.adapters.eventstore import readmodel
from turnlog.domain.errors import StorageError

APPLICATION_ID: Final = int.from_bytes(b"tlog", "big")
"""SQLite's `application_id`; `file` and others show it."""

FORM: Final = 1
"""The form of the stored events, SQLite's `user_version`. It rises when older turnlogs cannot read them."""


def check(cursor: SQLiteCursor, path: Path | None) -> None:
    """Refuse the file at `path` if it is no store, or one that only a newer turnlog can read.

    Raises:
        StorageError: the sentence says which.
    """
    application_id, form = _pragma(cursor, "application_id"), _pragma(cursor, "user_version")
    tables = _tables(cursor)
    if application_id not in (0, APPLICATION_ID) or (tables and "stored_events" not in tables):
        raise StorageError(f"'{path}' is a database of another program.")
    rows_form = readmodel.form(cursor) if "readmodel_version" in tables else 0
    if form > FORM or rows_form > readmodel.FORM:
        raise StorageError(
            f"The event store '{path}' was written by a newer version of turnlog. Use that version."
        )


def mark(cursor: SQLiteCursor) -> None:
    """Write into the file whose it is, and in which form."""
    cursor.execute(f"PRAGMA application_id={APPLICATION_ID}")
    cursor.execute(f"PRAGMA user_version={FORM}")


def _pragma(cursor: SQLiteCursor, name: str) -> int:
    cursor.execute(f"PRAGMA {name}")
    return int(cursor.fetchone()[0])


def _tables(cursor: SQLiteCursor) -> set[str]:
    cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {row["name"] for row in cursor.fetchall()}

"""What it means that the store raised: whether an append has failed, and why, or may yet succeed."""

import sqlite3
from typing import Final

from eventsourcing.persistence import IntegrityError, InterfaceError, OperationalError

from turnlog.domain.errors import StorageConflictError, StorageError, StorageRefusal, StorageRefusedError

_REFUSALS: Final[dict[int, StorageRefusal]] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
}
_PASSING = (OperationalError, InterfaceError, sqlite3.OperationalError, OSError, MemoryError)


def settled_failure(error: Exception) -> StorageError | None:
    """Why an append that raised `error` has failed; None if it may have landed, or will when tried again.

    Of the latter kind are a file that others keep locked, an I/O error and an error at COMMIT.
    """
    if isinstance(error, StorageError):
        return error
    sentence = f"The events could not be stored: {error}"
    if isinstance(error, IntegrityError):
        return StorageConflictError(sentence)
    code = _sqlite_code(error)
    if reason := _REFUSALS.get(code):
        return StorageRefusedError(reason, str(error))
    # SQLITE_ERROR is a statement that makes no sense, such as one on a table that is not there.
    if isinstance(error, _PASSING) and code != sqlite3.SQLITE_ERROR:
        return None
    return StorageError(sentence)


def _sqlite_code(error: Exception) -> int:
    """SQLite's primary result code; the library keeps SQLite's own error as the cause. 0 if there is none."""
    for each in (error, error.__cause__):
        if isinstance(each, sqlite3.Error):
            return getattr(each, "sqlite_errorcode", 0) & 0xFF
    return 0

"""Why an append is refused: by the store, or because it builds on one that was."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from eventsourcing.persistence import IntegrityError, InterfaceError, OperationalError, StoredEvent

from turnlog.domain.errors import StorageConflictError, StorageError, StorageRefusal, StorageRefusedError

REMEMBERED = 10_000
"""Responses; the oldest is forgotten first. Even then a gap is refused, because a version is missing."""

_REFUSALS: Final[dict[int, StorageRefusal]] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
}
_PASSING = (OperationalError, InterfaceError, sqlite3.OperationalError, OSError, MemoryError)


def settled_failure(error: Exception) -> StorageError | None:
    """Why an append that raised `error` has failed; None if it may have landed, or will when tried again.

    The outcome is open after an I/O error, an error at COMMIT, and while another process locks the file.
    """
    if isinstance(error, StorageError):
        return error
    sentence = f"The events could not be stored: {error}"
    if isinstance(error, IntegrityError):
        return StorageConflictError(sentence)
    code = _sqlite_code(error)
    if reason := _REFUSALS.get(code):
        return StorageRefusedError(reason, str(error))
    # SQLITE_ERROR is an invalid statement, such as one on a table that does not exist.
    if isinstance(error, _PASSING) and code != sqlite3.SQLITE_ERROR:
        return None
    return StorageError(sentence)


def _sqlite_code(error: Exception) -> int:
    """SQLite's primary result code, from the error or its cause; 0 if there is none."""
    for each in (error, error.__cause__):
        if isinstance(each, sqlite3.Error):
            return getattr(each, "sqlite_errorcode", 0) & 0xFF
    return 0


class RefusedAppends:
    """The version at which the newest refused append of each response began, and why it was refused.

    An append that begins at a later version takes the refused one for stored, so it is refused too. One that
    begins there or before is a new try; once it is stored, the refusal is forgotten.
    """

    def __init__(self) -> None:
        self._refusals: dict[str, tuple[int, StorageError]] = {}

    def reason(self, stored: Sequence[StoredEvent]) -> StorageError | None:
        """Why the append is refused for following a refused one; None if it does not follow one."""
        for response_id, version in _beginnings(stored).items():
            refused_at, failure = self._refusals.get(response_id, (version, None))
            if failure and version > refused_at:
                return failure
        return None

    def remember(self, stored: Sequence[StoredEvent], failure: StorageError) -> None:
        """Note a refused append; if it follows another refused one, that one is known already."""
        if self.reason(stored):
            return
        for response_id, version in _beginnings(stored).items():
            self._refusals.pop(response_id, None)
            self._refusals[response_id] = (version, failure)
        while len(self._refusals) > REMEMBERED:
            del self._refusals[next(iter(self._refusals))]

    def forget(self, stored: Sequence[StoredEvent]) -> None:
        """Forget the refusals of responses that this append, now stored, has continued."""
        if self._refusals:
            for response_id in _beginnings(stored):
                self._refusals.pop(response_id, None)


def _beginnings(stored: Sequence[StoredEvent]) -> dict[str, int]:
    """The first version of each response in an append."""
    return {str(each.originator_id): each.originator_version for each in reversed(stored)}

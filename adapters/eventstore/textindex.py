"""The full-text index over what was asked and answered: FTS5 by trigrams, so that any piece of text is found.

It holds no text, only where each run of three characters is; whoever takes a text out must say what it was.
Texts and what is looked for in them are `folded` (`domain.audit.folding`).
"""

import sqlite3

from eventsourcing.sqlite import SQLiteCursor

from turnlog.domain.errors import StorageError

TOKENIZER = "trigram case_sensitive 1"

SHORTEST = 3
"""Characters; what is shorter is in the index nowhere."""

_SECURE_DELETE_SINCE = (3, 42)

_NO_INDEX = "DROP TABLE IF EXISTS response_texts"
_ADD = "INSERT INTO response_texts (rowid, text) VALUES (:n, :text)"
_REMOVE = "INSERT INTO response_texts (response_texts, rowid, text) VALUES ('delete', :n, :text)"
_MATCH = "SELECT rowid FROM response_texts WHERE response_texts MATCH :phrase"


def require_full_text(cursor: SQLiteCursor) -> None:
    """Try whether this SQLite has what the index needs.

    Raises:
        StorageError: it has not.
    """
    try:
        cursor.execute(f"CREATE VIRTUAL TABLE temp.try_texts USING fts5 (text, tokenize = '{TOKENIZER}')")
        cursor.execute("DROP TABLE temp.try_texts")
    except sqlite3.Error as error:
        raise StorageError(
            f"This Python's SQLite ({sqlite3.sqlite_version}) cannot search text: {error}. "
            "turnlog needs SQLite 3.34 or newer with FTS5."
        ) from error


def create(cursor: SQLiteCursor) -> None:
    """Make the index anew, empty."""
    cursor.execute(_NO_INDEX)
    # Text columns and sizes are left out: they are in the log, and nothing is ranked.
    cursor.execute(
        "CREATE VIRTUAL TABLE response_texts USING fts5 "
        f"(text, content = '', columnsize = 0, tokenize = '{TOKENIZER}')"
    )
    if sqlite3.sqlite_version_info >= _SECURE_DELETE_SINCE:
        cursor.execute("INSERT INTO response_texts (response_texts, rank) VALUES ('secure-delete', 1)")


def add(cursor: SQLiteCursor, n: int, text: str) -> None:
    """Let response number `n` be found by its text."""
    cursor.execute(_ADD, {"n": n, "text": text})


def remove(cursor: SQLiteCursor, n: int, text: str) -> None:
    """Take a response out. `text` must be what it was added with, or the index is damaged."""
    cursor.execute(_REMOVE, {"n": n, "text": text})


def matches(cursor: SQLiteCursor, text: str, *, limit: int) -> list[int]:
    """Numbers of responses whose text has `text` in it; at most `limit`."""
    cursor.execute(f"{_MATCH} LIMIT :limit", {"phrase": _phrase(text), "limit": limit})
    return [n for (n,) in cursor.fetchall()]


def matches_among(cursor: SQLiteCursor, text: str, numbers: list[int]) -> set[int]:
    """Those of `numbers` whose text has `text` in it."""
    phrase, low, high = _phrase(text), min(numbers), max(numbers)
    # One look at the whole range costs about as much for each number in it as a look at one alone.
    if high - low < 8 * len(numbers):
        cursor.execute(
            f"{_MATCH} AND rowid BETWEEN :low AND :high", {"phrase": phrase, "low": low, "high": high}
        )
        return {n for (n,) in cursor.fetchall()} & set(numbers)
    found = set()
    for n in numbers:
        cursor.execute(f"{_MATCH} AND rowid = :n", {"phrase": phrase, "n": n})
        if cursor.fetchone():
            found.add(n)
    return found


def optimize(connection: sqlite3.Connection) -> None:
    """Write the index anew, without what was taken out of it: until then traces of that are left."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'response_texts'").fetchone():
        connection.execute("INSERT INTO response_texts (response_texts) VALUES ('optimize')")


def _phrase(text: str) -> str:
    """The text as one quoted phrase of FTS5's query language, in which nothing has a meaning."""
    quoted = text.replace('"', '""')
    return f'"{quoted}"'

"""Reads that end in the midst of a statement, when nobody wants them any more."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from turnlog.adapters.owner_queue import still_wanted

_STEPS = 20_000
"""Steps of SQLite's machine between two questions: some milliseconds; each needs Python's lock."""


@contextmanager
def interruptible(connection: sqlite3.Connection) -> Iterator[None]:
    """Have SQLite give up a statement, as an error, when the work on this thread has ended."""
    is_wanted = still_wanted()
    connection.set_progress_handler(lambda: not is_wanted(), _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)

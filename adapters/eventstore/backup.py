"""Copies a store to another file, whole and consistent, while it is written.

The copy goes on connection by connection: SQLite keeps it up to date with what the same connection writes
meanwhile, and would begin anew for what another one does. So it is the writer's own connection that copies, a
few pages at a time, and writes in between.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from turnlog.adapters.private import OWNER_ONLY
from turnlog.domain.errors import StorageError

PAGES_PER_STEP: Final = 256
"""A megabyte: some milliseconds, in which nothing is written."""


def copy(source: sqlite3.Connection, target: Path, between: Callable[[], None] = lambda: None) -> int:
    """Copy a database to a new file, for its owner only; the size of the copy in bytes.

    Until it is whole it is named like `target` with ".part" behind it.

    Args:
        between: called between two steps; it may write on `source`. What it raises ends the copy.

    Raises:
        StorageError: the file is there already, or cannot be written.
    """
    if target.exists():
        raise StorageError(f"'{target}' exists. Name a new file.")
    part = target.with_name(target.name + ".part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
    except FileExistsError:
        raise StorageError(f"'{part}' exists: another backup is writing it, or was broken off.") from None
    except OSError as error:
        raise StorageError(f"'{part}' cannot be written: {error.strerror}.") from error
    try:
        _fill(part, source, between)
        part.rename(target)
        _sync(target.parent)
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"The backup '{target}' could not be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size


def _fill(part: Path, source: sqlite3.Connection, between: Callable[[], None]) -> None:
    with closing(sqlite3.connect(part, isolation_level=None)) as copied:
        source.backup(copied, pages=PAGES_PER_STEP, progress=lambda *_: between())
        # One file that can be read from anywhere, without the files of a write-ahead log beside it.
        copied.execute("PRAGMA journal_mode=DELETE")
    _sync(part)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

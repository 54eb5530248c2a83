"""Whole ids for the beginnings of ids, which is what people type."""

import sqlite3
from contextlib import closing
from pathlib import Path

from turnlog.adapters.eventstore.sqlite import storage_errors

_BEGINNING = """
    SELECT response_id FROM responses WHERE response_id >= :prefix AND response_id < :behind
    ORDER BY response_id LIMIT :limit
"""
_LAST_CHARACTER = "\U0010ffff"


def ids_beginning(path: Path, prefix: str, *, limit: int) -> list[str]:
    """The ids of the responses in a store that begin with `prefix`, at most `limit`, in order.

    Raises:
        StorageError: the store cannot be read.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with (
        storage_errors(f"The event store '{path}' could not be read"),
        closing(sqlite3.connect(uri, uri=True)) as connection,
    ):
        wanted = {"prefix": prefix, "behind": prefix + _LAST_CHARACTER, "limit": limit}
        return [response_id for (response_id,) in connection.execute(_BEGINNING, wanted)]

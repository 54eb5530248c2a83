"""`turnlog backup`: a copy of the log, made by its server if one runs."""

import sqlite3
from contextlib import closing
from pathlib import Path

import click
from rich.markup import escape

from turnlog.adapters.eventstore.backup import copy
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.app.cli.console import out, refusing
from turnlog.app.cli.options import database, db_option
from turnlog.app.cli.server import NoServerError, Server
from turnlog.domain.errors import StorageError


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@db_option
def back_up(file: Path, db: str | None) -> None:
    """Copy the log to a file, while it is served.

    FILE must not exist yet. The copy is whole as at one moment, also while a server writes the log. Serve and
    read it like any log, by --db FILE. API keys and models are not in it.
    """
    path = database(db)
    target = file.absolute()
    with refusing():
        try:
            with closing(Server(path)) as server:
                server.post("/v1/operations/backup", {"path": str(target)})
        except NoServerError:
            if not path.is_file():
                raise StorageError(f"No event store at '{path}'.") from None
            with closing(StoreLock(path)), closing(sqlite3.connect(path)) as source:
                copy(source, target)
    out.print(f"Copied the log to {escape(str(file))}")

"""`turnlog vacuum` and `turnlog reindex`: what is done to a log while its server is stopped."""

import click

from turnlog.adapters.eventstore import store
from turnlog.app.cli.console import out, progress_bar, refusing
from turnlog.app.cli.log_file import with_the_server_stopped
from turnlog.app.cli.options import database, db_option


@click.command("vacuum")
@db_option
def vacuum_store(db: str | None) -> None:
    """Give back the space of expired responses.

    The server must be stopped, and the disk have as much room as the file takes.
    """
    with refusing():
        path = database(db)
        with with_the_server_stopped(path):
            freed_bytes = store.vacuum(path)
    out.print(f"{freed_bytes:,} bytes are free again")


@click.command("reindex")
@db_option
def reindex_store(db: str | None) -> None:
    """Make the tables behind ls and chain anew.

    They are made of the events; the server must be stopped. They hold nothing that is not in the events, so
    nothing is lost. A new version of turnlog does it by itself.
    """
    with refusing():
        path = database(db)
        with with_the_server_stopped(path), progress_bar() as progress:
            count = store.reindex(path, lambda done, total: progress("indexing", done / max(total, 1)))
    out.print(f"{count:,} events are indexed")

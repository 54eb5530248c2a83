"""`turnlog vacuum` and `turnlog reindex`: what is done to a log while its server is stopped."""

import click

from turnlog.adapters.eventstore import store
from turnlog.app.cli.console import out, progress_bar, refusing
from turnlog.app.cli.log_file import with_the_server_stopped
from turnlog.app.cli.options import database, db_option


@click.command("vacuum")
@db_option
def vacuum_store(db: str | None) -> None:
    """Reclaim the space of expired responses.

    Stop the server first. Needs free disk space of the size of the log.
    """
    with refusing():
        path = database(db)
        with with_the_server_stopped(path):
            freed_bytes = store.vacuum(path)
    out.print(f"Reclaimed {freed_bytes:,} bytes")


@click.command("reindex")
@db_option
def reindex_store(db: str | None) -> None:
    """Rebuild the search index and read model.

    Both are derived from the events, so nothing is lost. Stop the server first. A new version of turnlog
    rebuilds them when it needs to.
    """
    with refusing():
        path = database(db)
        with with_the_server_stopped(path), progress_bar() as progress:
            count = store.reindex(path, lambda done, total: progress("indexing", done / max(total, 1)))
    out.print(f"Indexed {count:,} events")

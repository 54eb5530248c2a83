"""`turnlog log`, `ls` and `vacuum`: commands on the file that holds the log."""

from contextlib import closing
from datetime import UTC, datetime
from typing import get_args

import click
import msgspec
from rich.table import Table

from adapters.eventstore.store import open_reader, vacuum
from adapters.openai.events import event_object
from app.cli.common import database, db_option, out, refusing
from app.timeline import timeline
from domain.errors import ResponseNotFoundError
from domain.events import FailureReason, Outcome
from domain.lifecycle import Status
from domain.ports import ResponseRow


@click.command("vacuum")
@db_option
def vacuum_store(db: str | None) -> None:
    """Give back the disk space of expired responses; the server must be stopped."""
    with refusing():
        freed_bytes = vacuum(database(db))
    out.print(f"{freed_bytes:,} bytes are free again", highlight=False)


@click.command("log")
@click.argument("response_id")
@db_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def show_log(response_id: str, db: str | None, *, as_json: bool) -> None:
    """Print the events of a response as a timeline."""
    with refusing(), closing(open_reader(database(db))) as reader:
        events = reader.events(response_id).result()
        if not events:
            raise ResponseNotFoundError(response_id)
    if as_json:
        for recorded in events:
            click.echo(msgspec.json.encode(event_object(recorded)))
    else:
        out.print(timeline(events))


@click.command("ls")
@db_option
@click.option(
    "--status",
    metavar="S",
    type=click.Choice([*(status.value for status in Status), *get_args(Outcome), *get_args(FailureReason)]),
    help="Only responses in this state (persisted, failed …), with this outcome or this reason of failure.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_responses(db: str | None, status: str | None, limit: int, *, as_json: bool) -> None:
    """List responses, the newest first."""
    with refusing(), closing(open_reader(database(db))) as reader:
        rows = reader.rows(status=status, limit=limit).result()
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row))
    else:
        out.print(response_table(rows))


def response_table(rows: list[ResponseRow]) -> Table:
    """Responses as a table."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    # An id that is cut is of no use: `turnlog log` takes whole ones.
    table.add_column("response", no_wrap=True, min_width=37)
    for title in ("made", "model", "state", "ended as"):
        table.add_column(title, no_wrap=True)
    now = datetime.now(UTC)
    for row in rows:
        made = ago((now - datetime.fromtimestamp(row.created_ms / 1000, UTC)).total_seconds())
        table.add_row(row.response_id, made, row.model, row.status, row.outcome or row.reason or "")
    return table


def ago(seconds: float) -> str:
    """How long ago that was, in its largest unit."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds // length_s:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"

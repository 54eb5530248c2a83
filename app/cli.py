"""The command line: `turnlog serve`, and commands that read the log of a running or stopped server."""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, get_args

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from adapters.eventstore.store import open_reader, vacuum
from adapters.openai.events import event_object
from app.bootstrap import Progress as ProgressCallback
from app.bootstrap import load_engines, pull_default_model
from app.server import open_socket, serve, url
from app.settings import Settings, SettingsError, load_settings
from app.timeline import timeline
from domain.errors import ResponseNotFoundError, ResponsesError
from domain.events import FailureReason, Outcome
from domain.lifecycle import Status
from domain.ports import ResponseRow

EXIT_REFUSED = 2
"""Something about the call or its surroundings is wrong, and the one line on stderr says what."""

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


def fail(message: str) -> NoReturn:
    """One clear line, and the exit code for it."""
    err.print(f"[bold red]turnlog:[/] {message}", highlight=False)
    sys.exit(EXIT_REFUSED)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what the service refuses into one line."""
    try:
        yield
    except (SettingsError, ResponsesError) as error:
        fail(str(error))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turnlog")
def main() -> None:
    """The OpenAI Responses API from local MLX models, with every turn kept as a log of events.

    Each option can be set by an environment variable too: --port is TURNLOG_PORT.
    """


db_option = click.option(
    "--db",
    metavar="PATH",
    help="The file that holds the log (default: in the user's data directory); :memory: keeps nothing.",
)


@main.command("serve")
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", help="Port to listen on (default 8000; 0 takes a free one).")
@db_option
@click.option(
    "--model", multiple=True, metavar="NAME=PATH", help="Serve an MLX model folder under a name; repeatable."
)
@click.option("--engine", help="mlx (default), or scripted: play a file instead of a model.")
@click.option("--script", metavar="FILE", help="The file that the scripted engine plays.")
def serve_command(**options: Any) -> None:
    """Serve /v1/responses. Without --model it serves smollm2, which it prepares at its first start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with refusing():
        settings = load_settings(os.environ, options)
        with open_socket(settings.host, settings.port) as listener:
            with progress_bar() as progress:
                engines = load_engines(settings, progress)
            ready = partial(announce, settings, url(listener), list(engines))
            asyncio.run(serve(settings, engines, listener, ready))


def announce(settings: Settings, address: str, models: list[str]) -> None:
    """Say where the server answers and give a line to try."""
    body = msgspec.json.encode({"model": models[0], "input": "What is the capital of France?"}).decode()
    out.print(f"turnlog serves [bold]{', '.join(models)}[/] on [bold]{address}[/], log in {settings.db}")
    out.print("Try:")
    out.print(f"  curl {address}/v1/responses -H 'Content-Type: application/json' \\", highlight=False)
    out.print(f"    -d '{body}'", highlight=False, markup=False)


@contextmanager
def progress_bar() -> Iterator[ProgressCallback]:
    """A bar that shows what is being prepared, on a terminal; plain lines elsewhere."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=err, transient=True
    )
    task = bar.add_task("preparing", total=1.0)
    told: set[str] = set()

    def progress(what: str, done: float) -> None:
        if err.is_terminal:
            bar.start()
            bar.update(task, description=what, completed=done)
        elif what not in told:
            told.add(what)
            err.print(f"{what} …", highlight=False)

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()


@main.group()
def models() -> None:
    """The models that turnlog can serve."""


@models.command("pull")
@click.argument("name", type=click.Choice(["smollm2"]))
def pull_model(name: str) -> None:
    """Fetch a model and turn it into an MLX model folder, once."""
    with refusing(), progress_bar() as progress:
        folder = pull_default_model(load_settings(os.environ, {}).cache, progress)
    out.print(f"{name} is in {folder}", highlight=False)


@main.command("vacuum")
@db_option
def vacuum_store(db: str | None) -> None:
    """Give back the disk space of expired responses; the server must be stopped."""
    with refusing():
        freed_bytes = vacuum(database(db))
    out.print(f"{freed_bytes:,} bytes are free again", highlight=False)


@main.command("log")
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


@main.command("ls")
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


def database(option: str | None) -> Path:
    """The log that a reading command reads."""
    return load_settings(os.environ, {"db": option}).db


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

"""`turnlog models`: list and change the models of a running server, and fetch a model."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from turnlog.app.cli.console import err, out, print_json, progress_bar, refusing
from turnlog.app.cli.options import database, db_option, json_option, settings
from turnlog.app.cli.printing import duration, plain_table, printable
from turnlog.app.cli.server import Server
from turnlog.app.server.engines import pull_default_model

Json = dict[str, Any]

_STATE_STYLES = {"resident": "green", "loading": "yellow", "declared": "dim"}


@click.group(invoke_without_command=True)
@db_option
@json_option
@click.pass_context
def models(context: click.Context, db: str | None, *, as_json: bool) -> None:
    """List, load, unload and swap the models of the running server.

    The server is the one that has the log (--db) open. Without a running server there are no models to list:
    the options of 'turnlog serve' declare them.
    """
    if context.invoked_subcommand is None:
        with _server(db) as server:
            _show(server.get("/v1/models")["data"], as_json=as_json)


@models.command("load")
@click.argument("name")
@db_option
@json_option
def load_model(name: str, db: str | None, *, as_json: bool) -> None:
    """Load a declared model now instead of at its first request."""
    _change("load", {"name": name}, db, as_json=as_json)


@models.command("unload")
@click.argument("name")
@db_option
@json_option
def unload_model(name: str, db: str | None, *, as_json: bool) -> None:
    """Free a model's memory; its next request loads it again."""
    _change("unload", {"name": name}, db, as_json=as_json)


@models.command("swap")
@click.argument("name")
@click.argument("to")
@db_option
@json_option
def swap_model(name: str, to: str, db: str | None, *, as_json: bool) -> None:
    """Point NAME at the model declared as TO.

    TO is loaded first if necessary. 'swap NAME NAME' reverts it.
    """
    _change("swap", {"name": name, "to": to}, db, as_json=as_json)


@models.command("loads")
@db_option
@json_option
def list_loads(db: str | None, *, as_json: bool) -> None:
    """List recent loads: cause, duration and error of each."""
    with _server(db) as server:
        entries = server.get("/v1/models")["data"]
    loads = sorted(
        (load for status in entries for load in status["loads"]), key=lambda load: load["started_ms"]
    )
    if as_json or _before_the_subcommand("as_json"):
        print_json(*loads)
    else:
        out.print(load_table(loads))


@models.command("pull")
@click.argument("name", type=click.Choice(["smollm2"]))
def pull_model(name: str) -> None:
    """Download a model as an MLX model folder."""
    with refusing(), progress_bar() as progress:
        folder = pull_default_model(settings().cache, progress)
    out.print(f"{name} is in {folder}")


@contextmanager
def _server(db: str | None) -> Iterator[Server]:
    with refusing(), closing(Server(database(db or _before_the_subcommand("db")))) as server:
        yield server


def _before_the_subcommand(option: str) -> Any:
    context = click.get_current_context()
    return context.parent and context.parent.params.get(option)


def _change(verb: str, body: Json, db: str | None, *, as_json: bool) -> None:
    doing = {"load": "loading", "unload": "unloading", "swap": "swapping"}[verb]
    waiting: Any = err.status(f"{doing} {body['name']} …") if err.is_terminal else nullcontext()
    with _server(db) as server, waiting:
        status = server.post(f"/v1/models/{verb}", body)
    _show([status], as_json=as_json)


def _show(entries: list[Json], *, as_json: bool) -> None:
    if as_json or _before_the_subcommand("as_json"):
        print_json(*entries)
    else:
        out.print(model_table(entries))


def model_table(entries: list[Json]) -> Table:
    """Models as a table."""
    table = plain_table()
    for title in ("model", "state", "aliases"):
        table.add_column(title, no_wrap=True)
    for title in ("weights", "running", "waiting", "process", "memory", "restarts"):
        table.add_column(title, no_wrap=True, justify="right")
    for title in ("defaults", "last crash"):
        table.add_column(title)
    for status in entries:
        state = status["state"]
        table.add_row(
            escape(status["id"]),
            f"[{_STATE_STYLES[state]}]{state}[/]",
            escape(", ".join(status["aliases"])),
            size(status["weight_bytes"]),
            str(status["active_turns"]),
            _waiting(status),
            str(status["process_id"] or ""),
            size(status["memory_bytes"]) if status["process_id"] else "",
            str(status["restarts"] or ""),
            ", ".join(f"{name} {value:g}" for name, value in status["defaults"].items()),
            escape(_last_crash(status)),
        )
    return table


def load_table(loads: list[Json]) -> Table:
    """Loads as a table, the oldest first."""
    table = plain_table()
    for title in ("started", "model", "cause"):
        table.add_column(title, no_wrap=True)
    table.add_column("duration", no_wrap=True, justify="right")
    table.add_column("error")
    for load in loads:
        started = datetime.fromtimestamp(load["started_ms"] / 1000, UTC)
        table.add_row(
            f"{started:%Y-%m-%d %H:%M:%SZ}",
            escape(load["model"]),
            load["label"],
            duration(load["ended_ms"] - load["started_ms"]),
            escape(printable(load["error"] or "")),
        )
    return table


def _waiting(status: Json) -> str:
    """How many wait, and how many may."""
    limit = status["queue_limit"]
    return str(status["queued_turns"]) if limit is None else f"{status['queued_turns']}/{limit}"


def _last_crash(status: Json) -> str:
    """When it was and why; with it, whether an operator has to load the model."""
    crash = status["last_crash"]
    if crash is None:
        return ""
    at = datetime.fromtimestamp(crash["at_ms"] / 1000, UTC)
    told = f"{at:%Y-%m-%d %H:%M:%SZ} {crash['reason']}"
    return (
        f"{told} (unloaded; reload with 'turnlog models load {status['id']}')"
        if status["unavailable"]
        else told
    )


def size(count_bytes: int) -> str:
    """A size in its largest unit."""
    for unit, unit_bytes in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count_bytes >= unit_bytes:
            return f"{count_bytes / unit_bytes:.1f} {unit}"
    return f"{count_bytes} B"

"""`turnlog keys`: who may use the server, and what for. The one way to make a key."""

import time
from datetime import UTC, datetime

import click
from msgspec.structs import asdict
from rich.table import Table

from turnlog.adapters.keys import Key, KeyFile
from turnlog.app.cli.console import err, out, print_json, refusing
from turnlog.app.cli.options import db_option, json_option, settings
from turnlog.app.cli.printing import ago, plain_table
from turnlog.app.server.bootstrap import key_file
from turnlog.app.settings import SettingsError
from turnlog.domain.errors import NotFoundError
from turnlog.domain.owners import Role


@click.group()
def keys() -> None:
    """The API keys of a log. A running server follows every change at its next request."""


@keys.command("add")
@click.argument("owner")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.CLIENT.value,
    show_default=True,
    help="client: its owner's responses; auditor: reads everybody's; operator: failed turns, models.",
)
@db_option
def add_key(owner: str, role: str, db: str | None) -> None:
    """Make a key for OWNER and print it, once. An owner may have many; they all see the same responses."""
    with refusing():
        file = _file(db)
        first = not file.read()
        key, text = file.add(owner, Role(role), now_s=int(time.time()))
    err.print(f"{key.id} lets {key.owner} in as {key.role}. It is shown this once:")
    click.echo(text)
    if first:
        err.print(_FIRST)


@keys.command("list")
@db_option
@json_option
def list_keys(db: str | None, *, as_json: bool) -> None:
    """List the keys: whose they are and what they are for, not the keys themselves."""
    with refusing():
        kept = _file(db).read()
    if as_json:
        for key in kept or ():
            shown = {name: value for name, value in asdict(key).items() if name != "sha256"}
            print_json(shown)
    elif kept:
        out.print(_table(kept))
    else:
        err.print(_NO_KEYS if kept is None else _NONE_LEFT)


@keys.command("revoke")
@click.argument("key_id")
@db_option
def revoke_key(key_id: str, db: str | None) -> None:
    """Let nobody in with that key any more; what it is reading now is cut off."""
    with refusing():
        file = _file(db)
        owned = [key.id for key in file.read() or () if key.owner == key_id]
        if owned:
            raise NotFoundError(f"'{key_id}' is an owner with the keys {', '.join(owned)}; revoke them by id")
        key, left = file.revoke(key_id)
    out.print(f"{key.id} of {key.owner} ({key.role}) is revoked")
    if not left:
        err.print(_NONE_LEFT)
        err.print(
            f"To serve yourself alone again, without keys: stop the server and remove {file.path}",
        )


_FIRST = (
    "From now on every request needs a key, also on this machine. "
    "What was made before belongs to the owner 'local'."
)
_NO_KEYS = (
    "There are no keys: the server listens on this machine only, and whoever asks is the owner 'local'."
)
_NONE_LEFT = "No key is left: the server lets nobody in until there is one."


def _file(db: str | None) -> KeyFile:
    """The key file of the log.

    Raises:
        SettingsError: the log is in memory.
    """
    file = key_file(settings(db=db))
    if file is None:
        raise SettingsError("a log in memory has no keys: it is served on this machine only")
    return file


def _table(kept: tuple[Key, ...]) -> Table:
    table = plain_table()
    for title in ("key", "owner", "role", "made"):
        table.add_column(title, no_wrap=True)
    now = datetime.now(UTC)
    for key in kept:
        made = ago((now - datetime.fromtimestamp(key.made_s, UTC)).total_seconds())
        table.add_row(key.id, key.owner, key.role, made)
    return table

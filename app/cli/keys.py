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
    """Add, list and revoke API keys. A running server applies changes at its next request."""


@keys.command("add")
@click.argument("owner")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.CLIENT.value,
    show_default=True,
    help="client: its owner's responses; auditor: reads all responses; operator: failed turns, models.",
)
@db_option
def add_key(owner: str, role: str, db: str | None) -> None:
    """Create a key for OWNER and print it once. All keys of an owner see the same responses."""
    with refusing():
        file = _file(db)
        first = not file.read()
        key, text = file.add(owner, Role(role), now_s=int(time.time()))
    err.print(f"{key.id} for {key.owner} ({key.role}). The key is shown only once:")
    click.echo(text)
    if first:
        err.print(_FIRST)


@keys.command("list")
@db_option
@json_option
def list_keys(db: str | None, *, as_json: bool) -> None:
    """List the keys with their owners and roles, not the keys themselves."""
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
    """Revoke a key. Its open connections are closed."""
    with refusing():
        file = _file(db)
        owned = [key.id for key in file.read() or () if key.owner == key_id]
        if owned:
            raise NotFoundError(
                f"'{key_id}' is an owner, not a key id. Keys of this owner: {', '.join(owned)}"
            )
        key, left = file.revoke(key_id)
    out.print(f"Revoked {key.id} of {key.owner} ({key.role})")
    if not left:
        err.print(_NONE_LEFT)
        err.print(
            f"To serve without keys again, stop the server and remove {file.path}",
        )


_FIRST = (
    "Every request now needs a key, including requests from this machine. "
    "Existing responses belong to the owner 'local'."
)
_NO_KEYS = "No keys: the server listens on this machine only, and every request belongs to the owner 'local'."
_NONE_LEFT = "No keys left: the server rejects every request until you add one."


def _file(db: str | None) -> KeyFile:
    """The key file of the log.

    Raises:
        SettingsError: the log is in memory.
    """
    file = key_file(settings(db=db))
    if file is None:
        raise SettingsError("An in-memory log has no keys: it is served on this machine only.")
    return file


def _table(kept: tuple[Key, ...]) -> Table:
    table = plain_table()
    for title in ("key", "owner", "role", "created"):
        table.add_column(title, no_wrap=True)
    now = datetime.now(UTC)
    for key in kept:
        made = ago((now - datetime.fromtimestamp(key.made_s, UTC)).total_seconds())
        table.add_row(key.id, key.owner, key.role, made)
    return table

"""`turnlog rm` and `turnlog cancel`: through the running server of the log, or on the log itself."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import click
from rich.markup import escape

from turnlog.adapters.eventstore.journal import SqliteEventJournal
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.reader import SqliteEventReader
from turnlog.adapters.eventstore.store import open_sqlite
from turnlog.adapters.system import SystemClock
from turnlog.app.cli.console import fail, out, refusing
from turnlog.app.cli.log_file import opened
from turnlog.app.cli.options import database, db_option
from turnlog.app.cli.server import NoServerError, Server
from turnlog.app.turns.deletion import Deletion
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.recovery import end_lost
from turnlog.domain.owners import LOCAL_OWNER


@click.command("rm")
@click.argument("response_id", required=False)
@click.option("--chain", is_flag=True, help="The whole conversation that RESPONSE_ID is part of.")
@click.option("--owner", metavar="NAME", help="Everything of this owner, instead of one response.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@db_option
def remove_responses(
    response_id: str | None, owner: str | None, db: str | None, *, chain: bool, yes: bool
) -> None:
    """Delete responses.

    What was asked and answered is removed for good; when, by whom and with how many tokens stays in the log.
    Turns that are queued or running are cancelled first. 'turnlog vacuum' gives back the space.

    \b
    turnlog rm resp_01a2…
    turnlog rm --chain resp_01a2…
    turnlog rm --owner ann
    """
    if (response_id is None) == (owner is None):
        fail("name a RESPONSE_ID, or an owner by --owner")
    if owner is not None and chain:
        fail("--chain is for a RESPONSE_ID; --owner has all conversations of the owner")
    path = database(db)
    if response_id is not None:
        with opened(db) as log:
            response_id = log.whole_id(response_id)
    what = (
        f"everything of '{owner}'"
        if owner
        else f"the conversation of {response_id}"
        if chain
        else response_id
    )
    if not yes:
        click.confirm(f"Delete {what} for good?", abort=True)
    name = "owner" if owner is not None else "chain" if chain else "response_id"
    with refusing():
        count = _delete(path, name, owner or response_id or "")
    out.print(f"{count} response{'s' * (count != 1)} deleted")


@click.command("cancel")
@click.argument("response_id")
@db_option
def cancel_turn(response_id: str, db: str | None) -> None:
    """Cancel a queued or running turn.

    Its answer as far as it has come stays in the log.
    """
    path = database(db)
    with opened(db) as log:
        response_id = log.whole_id(response_id)
    with refusing():
        try:
            with closing(Server(path)) as server:
                status = server.post("/v1/operations/cancel", {"response_id": response_id})["status"]
        except NoServerError:
            with _stopped(path) as (journal, reader):
                asyncio.run(Lost(journal, reader).cancel(response_id, None))
                row = reader.row(response_id).result()
                status = row.status if row else "gone"
    out.print(f"{response_id} is {escape(status)}")


def _delete(path: Path, name: str, value: str) -> int:
    """Delete what is named; how many responses that were."""
    try:
        with closing(Server(path)) as server:
            return int(server.post("/v1/operations/delete", {name: value})["deleted"])
    except NoServerError:
        with _stopped(path) as (journal, reader):
            return asyncio.run(_delete_in(journal, reader, name, value))


async def _delete_in(journal: SqliteEventJournal, reader: SqliteEventReader, name: str, value: str) -> int:
    deletion = Deletion(
        cancellation=Lost(journal, reader),
        log=reader,
        eraser=journal,
        live=LiveTurns(),
        open_ids=frozenset,
        clock=SystemClock(),
    )
    erase = {
        "response_id": deletion.erase,
        "chain": deletion.erase_chain,
        "owner": deletion.erase_owner,
    }[name]
    return await erase(value, LOCAL_OWNER)


class Lost(NamedTuple):
    """Turns that no server has: those that are queued, or were left when it died."""

    journal: SqliteEventJournal
    reader: SqliteEventReader

    async def cancel(self, response_id: str, owner: str | None) -> None:
        """End a turn if it has no end."""
        row = await asyncio.wrap_future(self.reader.row(response_id, owner=owner))
        if row and row.ended_ms is None:
            await end_lost(response_id, "cancelled", self.journal, self.reader, SystemClock())


@contextmanager
def _stopped(path: Path) -> Iterator[tuple[SqliteEventJournal, SqliteEventReader]]:
    """The log itself, which no server has."""
    with closing(StoreLock(path)):
        journal, reader = open_sqlite(path)
        with closing(journal), closing(reader):
            yield journal, reader

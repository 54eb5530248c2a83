"""The log that a reading command reads: the file itself, whether or not a server runs on it."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from turnlog.adapters.eventstore.lock import holder
from turnlog.adapters.eventstore.reader import SqliteEventReader
from turnlog.adapters.eventstore.store import open_reader
from turnlog.adapters.system import SystemClock
from turnlog.app.audit.reading import Audit
from turnlog.app.cli.console import refusing
from turnlog.app.cli.options import database
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites
from turnlog.app.turns.retrieval import Retrieval
from turnlog.domain.errors import InvalidRequestError, NotFoundError, StorageError
from turnlog.domain.ids import response_id

Answer = TypeVar("Answer")

_PREFIX = "resp_"
_MOST_NAMED = 5


class OpenedLog:
    """A log read from its file. `audit` withholds nothing: who can run the command can read the file."""

    def __init__(self, path: Path, reader: SqliteEventReader) -> None:
        self._path = path
        self._reader = reader
        clock = SystemClock()
        self.audit = Audit(reader, Retrieval(reader, LiveTurns(), PendingWrites(), clock), clock)

    def whole_id(self, given: str) -> str:
        """The id that begins with what was given; `resp_` may be left out, or be `chatcmpl-`.

        Raises:
            NotFoundError: there is none.
            InvalidRequestError: there are several.
        """
        given = response_id(given)
        prefix = given if given.startswith(_PREFIX) else _PREFIX + given
        found = self._reader.ids_beginning(prefix, limit=_MOST_NAMED + 1).result()
        if not found:
            raise NotFoundError(
                f"No response id in '{self._path}' begins with '{prefix}'. List responses with 'turnlog ls'."
            )
        if len(found) > 1 and found[0] != prefix:
            more = " …" if len(found) > _MOST_NAMED else ""
            raise InvalidRequestError(
                f"'{prefix}' is ambiguous: {', '.join(found[:_MOST_NAMED])}{more}. Type more of the id."
            )
        return found[0]

    def ask(self, asked: Coroutine[Any, Any, Answer]) -> Answer:
        """What comes of one of the use cases of `audit`."""
        return asyncio.run(asked)


@contextmanager
def opened(db: str | None) -> Iterator[OpenedLog]:
    """The log of a command; what cannot be done with it is said in one line."""
    with refusing():
        path = database(db)
        if not path.is_file():
            raise StorageError(
                f"No event store at '{path}'. Choose another log with --db, or create one with "
                "'turnlog serve'."
            )
        with closing(open_reader(path)) as reader:
            yield OpenedLog(path, reader)


@contextmanager
def with_the_server_stopped(path: Path) -> Iterator[None]:
    """Say of what fails because a server has the log that it has to be stopped."""
    try:
        yield
    except StorageError as error:
        if holder(path) is None:
            raise
        raise StorageError(f"{error} Stop the server and try again.") from error

"""Faults plugged in at `eventsourcing`'s own seam: a recorder whose next inserts go as they are told."""

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from eventsourcing.persistence import StoredEvent

from tests.adapters.eventstore.stories import opened
from turnlog.adapters.eventstore.journal import SqliteEventJournal
from turnlog.adapters.eventstore.reader import SqliteEventReader
from turnlog.adapters.eventstore.recorder import EventDatastore, EventRecorder

Fault = Callable[[Callable[[], Any]], Any]
"""Given what inserts the events; calls it, or not, and raises what it likes."""


def sqlite_error(code: int, sentence: str) -> sqlite3.Error:
    """What SQLite raises with that result code."""
    error = sqlite3.OperationalError(sentence)
    error.sqlite_errorcode = code
    return error


LOCKED = sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")
FULL = sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")
READ_ONLY = sqlite_error(sqlite3.SQLITE_READONLY, "attempt to write a readonly database")
CORRUPT = sqlite_error(sqlite3.SQLITE_CORRUPT, "database disk image is malformed")
IO_ERROR = sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error")


def before(error: Exception) -> Fault:
    """Nothing is inserted."""

    def fault(_: Callable[[], Any]) -> Any:
        raise error

    return fault


def after_commit(error: Exception) -> Fault:
    """The events land, and are reported as failed."""

    def fault(insert: Callable[[], Any]) -> Any:
        insert()
        raise error

    return fault


def works(insert: Callable[[], Any]) -> Any:
    """No fault."""
    return insert()


class Gate:
    """A fault that holds the writer in the store until the test opens it."""

    def __init__(self, then: Fault = works) -> None:
        self.reached = Event()
        self.open = Event()
        self._then = then

    def __call__(self, insert: Callable[[], Any]) -> Any:
        self.reached.set()
        self.open.wait()
        return self._then(insert)


class FaultyRecorder(EventRecorder):
    """Each insert meets the next of `faults`, each reading back the next of `unreadable`."""

    def __init__(self, datastore: EventDatastore) -> None:
        super().__init__(datastore)
        self.faults: deque[Fault] = deque()
        self.unreadable: deque[Exception] = deque()
        self.tried: list[list[StoredEvent]] = []

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int]:
        self.tried.append(list(stored_events))
        fault = self.faults.popleft() if self.faults else works
        positions: Sequence[int] = fault(lambda: super(FaultyRecorder, self).insert_events(stored_events))
        return positions

    def select_events(self, *args: Any, **kwargs: Any) -> Sequence[StoredEvent]:
        if self.unreadable:
            raise self.unreadable.popleft()
        return super().select_events(*args, **kwargs)


class FaultyStore(NamedTuple):
    path: Path
    journal: SqliteEventJournal
    reader: SqliteEventReader
    recorder: FaultyRecorder


@contextmanager
def opened_faulty(path: Path) -> Iterator[FaultyStore]:
    """A store whose writer meets faults, closed in the end."""
    recorders: list[FaultyRecorder] = []

    def make(datastore: EventDatastore) -> FaultyRecorder:
        recorders.append(FaultyRecorder(datastore))
        return recorders[0]

    with opened(path, make) as store:
        yield FaultyStore(*store, recorders[0])

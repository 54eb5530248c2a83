"""What the tests of the store tell it: short lives of responses, and a look at the file behind its back."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from turnlog.adapters.eventstore.journal import SqliteEventJournal
from turnlog.adapters.eventstore.reader import SqliteEventReader
from turnlog.adapters.eventstore.recorder import EventRecorder
from turnlog.adapters.eventstore.store import MakeRecorder, open_memory, open_sqlite
from turnlog.domain.events import (
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    PersistHardTimedOut,
    Recorded,
    ResponseCreated,
    ResponseEvent,
    Sampling,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)
from turnlog.domain.items import MessageItem
from turnlog.domain.messages import Message
from turnlog.domain.tokens import pack, record_prompt
from turnlog.domain.usage import Usage


class Store(NamedTuple):
    path: Path
    journal: SqliteEventJournal
    reader: SqliteEventReader


@contextmanager
def opened(path: Path | None, make_recorder: MakeRecorder = EventRecorder) -> Iterator[Store]:
    """The store of a file, or a new one in memory, closed in the end."""
    if path is None:
        journal, reader = open_memory(make_recorder=make_recorder)
        path = Path()
    else:
        journal, reader = open_sqlite(path, make_recorder=make_recorder)
    try:
        yield Store(path, journal, reader)
    finally:
        reader.close()
        journal.close()


def created(
    response_id: str, *, previous: str | None = None, at_ms: int = 1000, text: str = "hi"
) -> ResponseCreated:
    return ResponseCreated(
        at_ms=at_ms,
        response_id=response_id,
        model="smol",
        input=(Message("user", text),),
        sampling=Sampling(temperature=0.7, top_p=0.95, seed=7),
        expires_at=2000,
        instance_id=1,
        boot_id="boot",
        owner="ada",
        previous_response_id=previous,
    )


STARTED = GenerationStarted(
    at_ms=1001,
    cache_class="fresh",
    model_fingerprint="m",
    tokenizer_fingerprint="t",
    prompt=record_prompt((1, 2, 3)),
    output_budget_tokens=100,
)
COMMITTED = TurnCommitted(
    at_ms=1005, status="completed", usage=Usage(3, 2), output_ids=pack([4, 5]), alone=True
)
INCOMPLETE = TurnCommitted(at_ms=1005, status="incomplete", usage=Usage(3, 2))
FAILED = TurnFailed(at_ms=1005, reason="client_abort", message="the client hung up")
PERSISTED = TurnPersisted(at_ms=1006, write_ms=0.5)
HARD_TIMED_OUT = PersistHardTimedOut(at_ms=1006, after_ms=60_000)


def item_events(item_id: str) -> list[ResponseEvent]:
    return [
        ItemOpened(at_ms=1002, output_index=0, item=MessageItem(item_id, "in_progress", "")),
        ItemExtended(at_ms=1003, item_id=item_id, deltas=("Hel", "lo")),
        ItemClosed(at_ms=1004, output_index=0, item=MessageItem(item_id, "completed", "Hello")),
    ]


def recorded(response_id: str, *events: ResponseEvent, first: int = 1) -> list[Recorded]:
    """The events in their places, from version `first` on."""
    return [Recorded(response_id, version, event) for version, event in enumerate(events, first)]


def turn(response_id: str, *, previous: str | None = None, at_ms: int = 1000) -> list[Recorded]:
    """A whole turn that went well."""
    return recorded(
        response_id,
        created(response_id, previous=previous, at_ms=at_ms),
        STARTED,
        *item_events(f"msg_{response_id.removeprefix('resp_')}"),
        COMMITTED,
        PERSISTED,
    )


def without_deltas(events: list[Recorded]) -> list[Recorded]:
    return [recorded for recorded in events if not isinstance(recorded.event, ItemExtended)]


def execute(path: Path, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run a statement on the file over a connection of our own."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, parameters).fetchall()


@contextmanager
def write_locked(path: Path) -> Iterator[None]:
    """Nobody else can write the file meanwhile."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")

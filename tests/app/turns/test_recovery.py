"""What a restart makes of the turns that were lost: each ends, once, and nothing else changes."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import StoredEvent
from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, FAILED, HARD_TIMED_OUT, NOON_MS, PERSISTED, STARTED
from turnlog.adapters.eventstore.recorder import EventRecorder
from turnlog.adapters.eventstore.store import open_sqlite
from turnlog.adapters.system import SystemClock
from turnlog.app.turns.recovery import recover
from turnlog.domain.events import (
    ItemClosed,
    ItemExtended,
    ItemOpened,
    Recorded,
    ResponseCreated,
    ResponseEvent,
    TurnFailed,
    topic,
)
from turnlog.domain.items import MessageItem
from turnlog.domain.lifecycle import Status
from turnlog.domain.response import Response, fold_stored

OPENED = ItemOpened(at_ms=NOON_MS, output_index=0, item=MessageItem("msg_1", "in_progress", ""))
EXTENDED = ItemExtended(at_ms=NOON_MS, item_id="msg_1", deltas=("Hel",))

REQUEUED: list[ResponseCreated] = []


async def recovered(path: Path, *story: ResponseEvent) -> list[ResponseEvent]:
    """The stored events of a response with that story, after a restart and after a second one."""
    journal, reader = open_sqlite(path)
    events = [Recorded("resp_1", version, event) for version, event in enumerate(story, start=1)]
    await asyncio.wrap_future(journal.append(events))
    await recover(journal, reader, SystemClock(), REQUEUED.append)
    once = [recorded.event for recorded in await asyncio.wrap_future(reader.events("resp_1"))]
    assert await recover(journal, reader, SystemClock(), REQUEUED.append) == 0
    twice = await asyncio.wrap_future(reader.events("resp_1"))
    reader.close()
    journal.close()
    assert [recorded.event for recorded in twice] == once
    assert [recorded.version for recorded in twice] == list(range(1, len(twice) + 1))
    return once


@pytest.mark.parametrize(
    "story",
    [(CREATED,), (CREATED, STARTED), (CREATED, STARTED, OPENED), (CREATED, STARTED, OPENED, EXTENDED)],
    ids=lambda story: topic(story[-1]),
)
async def test_an_unfinished_turn_fails_by_the_restart(
    tmp_path: Path, story: tuple[ResponseEvent, ...]
) -> None:
    events = await recovered(tmp_path / "log.db", *story)

    response = fold_stored(events)
    assert (response.status, response.output.open_entries) == (Status.FAILED, [])
    assert isinstance(events[-1], TurnFailed)
    assert events[-1].reason == "server_restart"
    assert events[: len(story)] == list(story)


async def test_what_was_streamed_before_the_restart_stays_in_the_answer(tmp_path: Path) -> None:
    """R-319."""
    events = await recovered(tmp_path / "log.db", CREATED, STARTED, OPENED, EXTENDED)

    assert isinstance(events[-2], ItemClosed)
    assert fold_stored(events).items == [MessageItem("msg_1", "incomplete", "Hel")]


@pytest.mark.parametrize(
    "story",
    [
        (CREATED, STARTED, COMMITTED),
        (CREATED, STARTED, COMMITTED, PERSISTED),
        (CREATED, STARTED, COMMITTED, HARD_TIMED_OUT),
        (CREATED, STARTED, FAILED),
        (CREATED, FAILED),
    ],
    ids=lambda story: topic(story[-1]),
)
async def test_a_turn_that_has_ended_is_left_as_it_is(
    tmp_path: Path, story: tuple[ResponseEvent, ...]
) -> None:
    assert await recovered(tmp_path / "log.db", *story) == list(story)


async def test_a_turn_that_cannot_be_read_is_left_and_the_others_are_ended(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    journal, reader = open_sqlite(path)
    for response_id in ("resp_1", "resp_2"):
        created = Recorded(response_id, 1, replace(CREATED, response_id=response_id))
        await asyncio.wrap_future(journal.append([created]))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE stored_events SET state = '{' WHERE originator_id = 'resp_1'")

    ended = await recover(journal, reader, SystemClock(), REQUEUED.append)

    left = await asyncio.wrap_future(reader.unfinished())
    reader.close()
    journal.close()
    assert (ended, left) == (1, ["resp_1"])


async def test_many_turns_are_ended_in_few_transactions(tmp_path: Path) -> None:
    """A start after an outage must not wait for the disk once for each of thousands."""
    transactions: list[int] = []

    class Counting(EventRecorder):
        def insert_events(self, stored_events: Sequence[StoredEvent], **options: Any) -> Sequence[int]:
            transactions.append(len(stored_events))
            return super().insert_events(stored_events, **options)

    journal, reader = open_sqlite(tmp_path / "log.db", make_recorder=Counting)
    lost = [f"resp_{number:03}" for number in range(300)]
    begun = [Recorded(each, 1, replace(CREATED, response_id=each)) for each in lost]
    await asyncio.wrap_future(journal.append(begun))
    transactions.clear()
    told: list[Response] = []

    count = await recover(journal, reader, SystemClock(), REQUEUED.append, told.append)

    left = await asyncio.wrap_future(reader.unfinished())
    reader.close()
    journal.close()
    assert (count, left) == (300, [])
    assert [response.id for response in told] == lost
    assert {response.ended.reason for response in told if isinstance(response.ended, TurnFailed)} == {
        "server_restart"
    }
    assert len(transactions) < 100

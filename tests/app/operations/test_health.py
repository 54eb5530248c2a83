"""Whether the server is ready, and if not, why."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.services import asked, running
from tests.fakes.engine import PuppetEngine
from tests.floors import resident
from turnlog.adapters.eventstore.store import open_sqlite
from turnlog.adapters.system import SystemClock
from turnlog.app.operations import health
from turnlog.app.operations.health import Health
from turnlog.domain.errors import StorageUnavailableError


class Load:
    """How far a journal is behind, as the test says."""

    queued_bytes = 0

    def __init__(self, *, accepts_new: bool = True, oldest_s: float = 0.0) -> None:
        self.accepts_new = accepts_new
        self._oldest_s = oldest_s

    def oldest_queued_s(self) -> float:
        """As the test says."""
        return self._oldest_s


async def problems(
    folder: Path, load: Load, *, silent: bool = False, unlink: bool = False, stopping: bool = False
) -> list[str]:
    """What a server says that has such an engine, journal and file."""
    engine = PuppetEngine()
    engine.alive = not silent
    journal, reader = open_sqlite(folder / "log.db")
    if unlink:
        (folder / "log.db").unlink()
    try:
        models = resident({"scripted": engine}, SystemClock())
        return await Health(models, reader, load, lambda: stopping).problems()
    finally:
        reader.close()
        journal.close()


async def test_a_server_whose_parts_answer_is_ready(tmp_path: Path) -> None:
    assert await problems(tmp_path, Load()) == []


async def test_a_server_that_stops_is_not_ready(tmp_path: Path) -> None:
    """R-393: so that a load balancer sends it nothing new."""
    assert await problems(tmp_path, Load(), stopping=True) == ["the server is stopping"]


async def test_an_engine_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ENGINE_DEADLINE_S", 0.01)

    assert await problems(tmp_path, Load(), silent=True) == [
        "the engine of model scripted did not answer within 0.01 s"
    ]


async def test_a_file_that_was_deleted_is_noticed(tmp_path: Path) -> None:
    found = await problems(tmp_path, Load(), unlink=True)

    assert "the store's file was deleted or replaced; what is written now will be lost" in found


async def test_a_queue_that_is_stuck_or_full_is_told(tmp_path: Path) -> None:
    found = await problems(tmp_path, Load(accepts_new=False, oldest_s=42.0))

    assert found == [
        "the store has not taken a write for 42 s",
        "the store is overloaded and rejects new turns",
    ]


async def test_a_full_queue_takes_no_new_stored_turn_and_loses_none_that_it_has(tmp_path: Path) -> None:
    async with running(tmp_path, max_queued_bytes=3_000) as service:
        with closing(sqlite3.connect(tmp_path / "turnlog.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            first = await service.turns.begin(asked("h" * 6_000))

            with pytest.raises(StorageUnavailableError):
                await service.turns.begin(asked("hi"))
            unstored = await service.turns.begin(asked("hi", store=False))
            await unstored.ended.wait()
            await first.ended.wait()
            other.execute("ROLLBACK")

        await first.settled.wait()
        await (await service.turns.begin(asked("hi"))).settled.wait()
        assert (await service.retrieval.response(first.response.id)).response.items == first.response.items

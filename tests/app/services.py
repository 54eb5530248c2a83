"""A service in the test's own loop: the scripted engine, real SQLite, and journals that can fail."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.scripted.engine import ScriptedEngine
from app import bootstrap
from app.service import Service
from app.settings import Settings
from domain.errors import StorageError
from domain.events import Recorded, ResponseEvent
from domain.messages import Message
from domain.ports import EventJournal
from domain.request import TurnRequest
from tests.app.scripts import SCRIPT, write_script

WrapJournal = Callable[[EventJournal], EventJournal]


def asked(text: str, **fields: Any) -> TurnRequest:
    """A request for a turn."""
    return TurnRequest(model="scripted", input=(Message("user", text),), **fields)


@asynccontextmanager
async def running(
    folder: Path, script: dict[str, Any] = SCRIPT, wrap: WrapJournal = lambda journal: journal
) -> AsyncIterator[Service]:
    """A service that plays the script; `wrap` comes between it and its journal."""
    engine = ScriptedEngine.load(write_script(folder, script))
    settings = Settings(db=folder / "turnlog.db")
    with ExitStack() as resources:
        service = bootstrap.assemble(settings, {"scripted": engine}, resources, wrap_journal=wrap)
        yield service
        await service.turns.shut_down(60)


class HeldJournal:
    """A journal whose writes land when the test says so.

    Args:
        holds: which appends are held back.
    """

    def __init__(self, journal: EventJournal, holds: type[ResponseEvent]) -> None:
        self._journal = journal
        self._holds = holds
        self._held: list[tuple[Sequence[Recorded], Future[None]]] = []
        self._arrived: dict[type, asyncio.Event] = {}

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Hold the append back, or pass it on."""
        for recorded in events:
            self._seen(type(recorded.event)).set()
        behind = bool(self._held)
        if behind or any(isinstance(recorded.event, self._holds) for recorded in events):
            self._held.append((events, Future()))
            return self._held[-1][1]
        return self._journal.append(events)

    async def until(self, kind: type[ResponseEvent]) -> None:
        """Wait until an event of that kind was handed over."""
        await self._seen(kind).wait()

    def land(self) -> None:
        """Let all that is held back land, in order."""
        held, self._held = self._held, []
        for events, done in held:
            self._journal.append(events).result()
            done.set_result(None)

    def close(self) -> None:
        """Close the journal behind."""
        self._journal.close()

    def _seen(self, kind: type) -> asyncio.Event:
        return self._arrived.setdefault(kind, asyncio.Event())


class RefusingJournal:
    """A journal that stores nothing of what it is asked to store."""

    def __init__(self, journal: EventJournal) -> None:
        self._journal = journal

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Refuse."""
        refused: Future[None] = Future()
        refused.set_exception(StorageError(f"the disk is full: {len(events)} events"))
        return refused

    def close(self) -> None:
        """Close the journal behind."""
        self._journal.close()

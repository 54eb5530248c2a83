"""A service in the test's own loop: the scripted engine, real SQLite, and journals that can fail."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.app.scripts import SCRIPT, write_script
from tests.waiting import SOON_S
from turnlog.adapters.scripted.source import ScriptedSource
from turnlog.app.http.service import Service
from turnlog.app.server import bootstrap
from turnlog.app.settings import Settings
from turnlog.domain.errors import StorageError
from turnlog.domain.events import Recorded, ResponseEvent, TurnCommitted
from turnlog.domain.messages import Message
from turnlog.domain.ports import EventJournal
from turnlog.domain.request import TurnRequest

WrapJournal = Callable[[EventJournal], EventJournal]


def asked(text: str, **fields: Any) -> TurnRequest:
    """A request for a turn."""
    return TurnRequest(model="scripted", input=(Message("user", text),), **fields)


@asynccontextmanager
async def running(
    folder: Path,
    script: dict[str, Any] = SCRIPT,
    wrap: WrapJournal = lambda journal: journal,
    **settings: Any,
) -> AsyncIterator[Service]:
    """A service that plays the script; `wrap` comes between it and its journal."""
    source = ScriptedSource(write_script(folder, script))
    with ExitStack() as resources:
        chosen = Settings(**{"db": folder / "turnlog.db"} | settings)
        service = bootstrap.assemble(chosen, {"scripted": source}, resources, wrap_journal=wrap)
        yield service
        await shut_down(service)


async def shut_down(service: Service) -> None:
    """End what runs, and fail if a turn or a write stays."""
    try:
        async with asyncio.timeout(SOON_S):
            await service.turns.shut_down(2 * SOON_S)
    except TimeoutError:
        raise AssertionError("a turn or a write did not come to its end") from None


class HeldJournal:
    """A journal whose writes land when the test says so.

    Args:
        holds: which appends are held back.
    """

    def __init__(self, journal: EventJournal, holds: type[ResponseEvent]) -> None:
        self._journal = journal
        self._holds = holds
        self._held: list[tuple[Sequence[Recorded], Future[None]]] = []
        self._counts: Counter[type] = Counter()
        self._news = asyncio.Event()

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Hold the append back, or pass it on."""
        self._counts.update(type(recorded.event) for recorded in events)
        self._news.set()
        self._news = asyncio.Event()
        behind = bool(self._held)
        if behind or any(isinstance(recorded.event, self._holds) for recorded in events):
            self._held.append((events, Future()))
            return self._held[-1][1]
        return self._journal.append(events)

    async def until(self, kind: type[ResponseEvent], times: int = 1) -> None:
        """Wait until so many events of that kind were handed over."""
        while self._counts[kind] < times:
            await self._news.wait()

    def land(self) -> None:
        """Let all that is held back land, in order."""
        held, self._held = self._held, []
        for events, done in held:
            self._journal.append(events).result()
            done.set_result(None)

    def close(self) -> None:
        """Close the journal behind."""
        self._journal.close()


class Held:
    """Makes the journal of a service one that holds appends back, by default those of commits."""

    journal: HeldJournal

    def __init__(self, holds: type[ResponseEvent] = TurnCommitted) -> None:
        self._holds = holds

    def __call__(self, journal: EventJournal) -> EventJournal:
        """Come between turns and journal."""
        self.journal = HeldJournal(journal, self._holds)
        return self.journal


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

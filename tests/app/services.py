"""A service in the test's own loop, with the scripted engine and real SQLite."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.app.scripts import SCRIPT, write_script
from tests.waiting import SOON_S
from turnlog.adapters.scripted.source import ScriptedSource
from turnlog.app.http.service import Service
from turnlog.app.server import bootstrap
from turnlog.app.settings import Settings
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

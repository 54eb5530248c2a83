"""Journals for tests: two that come between a service and its own, and one that stores nothing."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Self

from turnlog.domain.errors import StorageError
from turnlog.domain.events import Recorded, ResponseEvent, TurnCommitted, TurnFailed
from turnlog.domain.ports import EventJournal

FULL = StorageError("the disk is full")


class Between:
    """A journal that passes everything on to the one of a service, which it wraps when it is called."""

    _journal: EventJournal

    def __call__(self, journal: EventJournal) -> Self:
        """Come between the turns and this journal; see `bootstrap.assemble`."""
        self._journal = journal
        return self

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Pass the events on."""
        return self._journal.append(events)

    def close(self) -> None:
        """Close the wrapped journal."""
        self._journal.close()


class HeldJournal(Between):
    """A journal whose writes land when the test says so.

    Args:
        holds: the event that holds its append back, and with it every later one.
    """

    def __init__(self, holds: type[ResponseEvent] = TurnCommitted) -> None:
        self._holds = holds
        self._held: list[tuple[Sequence[Recorded], Future[None]]] = []
        self._counts: Counter[type] = Counter()
        self._news = asyncio.Event()

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Hold the append back, or pass it on."""
        self._counts.update(type(recorded.event) for recorded in events)
        self._news.set()
        self._news = asyncio.Event()
        if self._held or any(isinstance(recorded.event, self._holds) for recorded in events):
            self._held.append((events, Future()))
            return self._held[-1][1]
        return super().append(events)

    async def until(self, kind: type[ResponseEvent], times: int = 1) -> None:
        """Wait until so many events of that kind were handed over."""
        while self._counts[kind] < times:
            await self._news.wait()

    def land(self) -> None:
        """Let all that is held back land, in order."""
        held, self._held = self._held, []
        for events, done in held:
            super().append(events).result()
            done.set_result(None)


class RefusingJournal(Between):
    """A journal that refuses every append from the first with an event of that kind on; by default, all."""

    def __init__(self, first: type[ResponseEvent] | None = None, error: StorageError = FULL) -> None:
        self._first = first
        self._error = error
        self._refuses = first is None

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Refuse the events, or pass them on."""
        first = self._first
        self._refuses |= first is not None and any(isinstance(each.event, first) for each in events)
        if not self._refuses:
            return super().append(events)
        refused: Future[None] = Future()
        refused.set_exception(self._error)
        return refused


class Calls:
    """The calls of several fakes, in order; can be waited for."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self._seen: dict[str, asyncio.Event] = {}

    def add(self, call: str) -> None:
        """Note a call."""
        self.made.append(call)
        self._event(call).set()

    async def until(self, call: str) -> None:
        """Wait until that call was made."""
        await self._event(call).wait()

    def since(self, call: str) -> list[str]:
        """The calls after the first of that name."""
        return self.made[self.made.index(call) + 1 :]

    def _event(self, call: str) -> asyncio.Event:
        return self._seen.setdefault(call, asyncio.Event())


class NotingJournal:
    """A journal that notes its appends. `last`, that of a turn's end, settles when the test says so.

    `raises` is raised instead of taking another append; `told` are the events that were taken.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.last: Future[None] = Future()
        self.raises: Exception | None = None
        self.told: list[ResponseEvent] = []

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Take the events, unless it raises."""
        last = events[-1].event
        self._calls.add(f"append {type(last).__name__}")
        if self.raises:
            raise self.raises
        self.told += [recorded.event for recorded in events]
        append: Future[None] = Future()
        append.set_running_or_notify_cancel()
        if isinstance(last, TurnCommitted | TurnFailed):
            self.last = append
        return append

    def close(self) -> None:
        """Nothing to close."""

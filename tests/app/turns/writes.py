"""Given, when, then for the write that holds a turn's last event: fakes that note what is asked of them."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tests.domain.stories import COMMITTED, CREATED, NOON_MS, STARTED
from tests.fakes.clock import StoppedClock
from tests.fakes.journal import FULL, Calls, NotingJournal
from turnlog.adapters.openai.frames import Framer
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites, Sizes
from turnlog.app.turns.persistence import Persistence, TurnLog
from turnlog.domain.events import TurnCommitted, TurnFailed
from turnlog.domain.response import Response

ID = CREATED.response_id
EXPIRY_MS = NOON_MS + 3_600_000


class FakePins:
    """Notes what is asked of it; `has_model` is whether a model has the id."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.has_model = True

    def pin(self, instance_id: int) -> None:
        """Note it."""
        self._calls.add(f"retain {instance_id}")

    def unpin(self, instance_id: int) -> None:
        """Note it."""
        self._calls.add(f"release {instance_id}")

    def retire(self, instance_id: int) -> bool:
        """Note it."""
        self._calls.add(f"retire {instance_id}")
        return self.has_model

    def unretire(self, instance_id: int) -> None:
        """Note it."""
        self._calls.add(f"unretire {instance_id}")


class NotingPending(PendingWrites["asyncio.Future[None]"]):
    """A tracker that notes when a write becomes known and when it becomes a marker."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def register(
        self, response_id: str, write: "asyncio.Future[None]", earliest_expiry_ms: float | None
    ) -> None:
        """Note it, and do it."""
        self._calls.add("register")
        super().register(response_id, write, earliest_expiry_ms)

    def hard_time_out(self, response_id: str, *, now_ms: int, ttl_ms: float) -> bool:
        """Note it, and do it."""
        self._calls.add("mark")
        return super().hard_time_out(response_id, now_ms=now_ms, ttl_ms=ttl_ms)


class Given:
    """A turn that has started, its log, and fakes all around."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.journal = NotingJournal(self.calls)
        self.pins = FakePins(self.calls)
        self.pending = NotingPending(self.calls)
        self.turn = LiveTurn(Response(CREATED), Framer())
        self.live = LiveTurns()
        self.live.add(self.turn)
        persistence = Persistence(self.journal, self.pending, self.pins, self.live, StoppedClock())
        self._persistence = persistence
        self._log: TurnLog = persistence.begin(CREATED, EXPIRY_MS)
        self._happens(STARTED)

    def _happens(self, event: Any) -> None:
        self.turn.response.apply(event)
        self.turn.publish([event])
        self._log.keep([event])

    def ends(self, last: TurnCommitted | TurnFailed = COMMITTED) -> None:
        """The turn ends, and its last write is started."""
        self.turn.response.apply(last)
        self.turn.publish([last])
        self._log.finish(self.turn, [last])

    async def lands(self) -> None:
        """The last write lands."""
        self.journal.last.set_result(None)
        await self._persistence.until_settled()

    async def fails(self) -> None:
        """The last write fails."""
        self.journal.last.set_exception(FULL)
        await self._persistence.until_settled()

    @property
    def sizes(self) -> Sizes:
        """What the tracker holds."""
        return self.pending.sizes(now_ms=NOON_MS)


LimitsMs = Callable[[str, str], None]
"""Sets the soft and the hard limit of writes."""


class Lines(logging.Handler):
    """The lines about responses from WARNING on; can be waited for."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        if record.getMessage().startswith("[responses]"):
            self.told.append(f"{record.levelname} {record.getMessage()}")
            self._news.set()

    async def until_one(self) -> None:
        """Wait for the first line."""
        await self._news.wait()

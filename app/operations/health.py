"""Whether the server can do its work: the store answers, its file is still there, the engines answer."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from turnlog.app.models import Models
from turnlog.domain.ports import EventReader, JournalLoad

STORE_DEADLINE_S = 2.0
ENGINE_DEADLINE_S = 1.0
"""An engine answers at once, whatever it computes."""

STUCK_QUEUE_S = 10.0
"""How long an append may wait before the queue counts as stuck."""


class Health:
    """Asks the parts of the server that can get stuck, each with a deadline.

    Args:
        stopping: whether the server takes no new turns any more.
    """

    def __init__(
        self, models: Models, reader: EventReader, load: JournalLoad, stopping: Callable[[], bool]
    ) -> None:
        self._stopping = stopping
        self._models = models
        self._reader = reader
        self._load = load

    async def problems(self) -> list[str]:
        """What keeps the server from taking turns, in sentences; none if it is ready."""
        checks: list[Awaitable[str | None]] = [
            _answers(self._reader.ping(), STORE_DEADLINE_S, "the store"),
            *(
                _answers(model.engine.ping(), ENGINE_DEADLINE_S, f"the engine of model {min(model.names)}")
                for model in self._models.resident()
            ),
        ]
        found = [problem for problem in await asyncio.gather(*checks) if problem]
        found += filter(None, {model.unavailable for model in self._models.listed()})
        if self._stopping():
            found.append("the server is stopping")
        if not self._reader.same_file():
            found.append("the store's file was deleted or replaced; what is written now will be lost")
        if (waited_s := self._load.oldest_queued_s()) > STUCK_QUEUE_S:
            found.append(f"the store has not taken a write for {waited_s:.0f} s")
        if not self._load.accepts_new:
            found.append("the store is overloaded and rejects new turns")
        return found


async def _answers(answer: Future[None], deadline_s: float, who: str) -> str | None:
    try:
        await asyncio.wait_for(asyncio.wrap_future(answer), deadline_s)
    except TimeoutError:
        return f"{who} did not answer within {deadline_s:g} s"
    except Exception as error:
        return f"{who} failed: {error}"
    return None

"""The use cases of replay: run a finished turn again, stream it again, and compare."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from turnlog.app.models import Models
from turnlog.app.turns.accept import Turns
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.audit.check import DecodeTokens, Verdict, check_checkable, judge
from turnlog.domain.events import ResponseCreated, ResponseEvent
from turnlog.domain.rerun import Changes, as_request
from turnlog.domain.response import Response


class Replays:
    """Runs stored turns again, whoever owns them; which ones a caller may is decided by `Retrieval`."""

    def __init__(self, turns: Turns, models: Models) -> None:
        self._turns = turns
        self._models = models

    async def rerun(self, original: Response, changes: Changes, *, yields: bool = False) -> LiveTurn:
        """Run the turn again, as a new response of its owner.

        Args:
            yields: whether live turns go first.

        Raises:
            ResponsesError: it cannot be run again, because its chain or model is gone or has no room; nothing
                has been recorded.
        """
        created = original.created
        return await self._turns.begin(as_request(created, changes), created.owner, yields=yields)

    async def check(self, original: Response, *, yields: bool = False) -> "Check":
        """Run the turn again with its own seed on its own model, to compare the two.

        Raises:
            InvalidRequestError: a check could not be conclusive (`check_checkable`).
            ResponsesError: see `rerun`.
        """
        # Loaded before it is judged: a fingerprint is known only of a model in memory.
        name = original.created.model
        await self._models.load(name)
        engine = self._models.engine(name)
        check_checkable(original, engine)
        turn = await self.rerun(original, Changes(), yields=yields)
        return Check(original, turn, engine.decode_tokens)


class Check(NamedTuple):
    """A check that was begun. Its verdict is known when `turn` has ended."""

    original: Response
    turn: LiveTurn
    decode_tokens: DecodeTokens

    def verdict(self) -> Verdict:
        """How the two compare."""
        return judge(self.original, self.turn.response, self.decode_tokens)


async def paced(events: Sequence[ResponseEvent]) -> AsyncIterator[ResponseEvent]:
    """The events of a turn one by one, as far apart as they were.

    Deltas were stored together if they came within a tenth of a second, so the pace is that fine.
    """
    created = events[0]
    assert isinstance(created, ResponseCreated)
    began_s = asyncio.get_running_loop().time()
    for event in events:
        due_s = began_s + (event.at_ms - created.at_ms) / 1000
        await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
        yield event

"""The use cases of replay: find a turn that is over, run it again, and compare."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from turnlog.app.models import Models
from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.accept import Turns
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.domain.audit.check import Spell, Verdict, check_checkable, judge
from turnlog.domain.errors import (
    ContentExpiredError,
    InvalidRequestError,
    ResponseNotFoundError,
    StorageTimeoutError,
)
from turnlog.domain.events import ContentExpired, Recorded, ResponseCreated, ResponseEvent, TurnFailed
from turnlog.domain.ports import Clock, EventReader
from turnlog.domain.rerun import Changes, as_request
from turnlog.domain.response import Response, fold_stored


class Original:
    """A stored turn that is over, with the events it is known by.

    Args:
        replays_a_failure: whether it runs a turn again that had failed.
    """

    def __init__(self, events: Sequence[Recorded], *, replays_a_failure: bool) -> None:
        self.events: list[ResponseEvent] = [recorded.event for recorded in events]
        self.response: Response = fold_stored(self.events)
        self.replays_a_failure = replays_a_failure

    @property
    def failed(self) -> bool:
        """Whether the turn failed."""
        return isinstance(self.response.ended, TurnFailed)


class Replays:
    """Runs stored turns again, whoever owns them; who may ask is decided before."""

    def __init__(
        self,
        turns: Turns,
        models: Models,
        reader: EventReader,
        live: LiveTurns,
        clock: Clock,
    ) -> None:
        self._turns = turns
        self._models = models
        self._reader = reader
        self._live = live
        self._clock = clock

    async def original(self, response_id: str) -> Original:
        """The turn of that id.

        Raises:
            ResponseNotFoundError: there is none.
            InvalidRequestError: it has not ended, or its end was never stored.
            StorageTimeoutError: its end is still being written.
            ContentExpiredError: its content was removed, or is about to be.
        """
        if turn := self._live.of(response_id, None):
            if turn.response.ended is None:
                raise _not_over(response_id)
            if not await turn.until_settled(chain_write_wait_s()):
                raise StorageTimeoutError(response_id)
        events = await asyncio.wrap_future(self._reader.events(response_id))
        if not events:
            raise ResponseNotFoundError(response_id)
        original = Original(events, replays_a_failure=await self._replays_a_failure(events))
        created = original.response.created
        expired = created.expires_at <= self._clock.now_ms() // 1000
        if expired or any(isinstance(event, ContentExpired) for event in original.events):
            raise ContentExpiredError(response_id)
        if original.response.ended is None:
            raise _not_over(response_id)
        return original

    async def _replays_a_failure(self, events: Sequence[Recorded]) -> bool:
        created = events[0].event
        assert isinstance(created, ResponseCreated)
        if created.replay_of is None:
            return False
        earlier = await asyncio.wrap_future(self._reader.events(created.replay_of))
        return any(isinstance(recorded.event, TurnFailed) for recorded in earlier)

    async def rerun(self, original: Original, changes: Changes, *, yields: bool = False) -> LiveTurn:
        """Run the turn again, as a new response of its owner.

        Args:
            yields: whether live turns go first.

        Raises:
            ResponsesError: it cannot be run again, because its chain or model is gone or has no room; nothing
                has been recorded.
        """
        created = original.response.created
        return await self._turns.begin(as_request(created, changes), created.owner, yields=yields)

    async def check(self, original: Original, *, yields: bool = False) -> "Check":
        """Run the turn again with its own seed on its own model, to compare the two.

        Raises:
            InvalidRequestError: a check could say nothing (`check_checkable`).
            ResponsesError: see `rerun`.
        """
        # Loaded before it is judged: a fingerprint is known only of a model in memory.
        name = original.response.created.model
        await self._models.load(name)
        engine = self._models.engine(name)
        check_checkable(original.response, engine)
        turn = await self.rerun(original, Changes(), yields=yields)
        return Check(original.response, turn, engine.spell)


class Check(NamedTuple):
    """A check that was begun. Its verdict is known when `turn` has ended."""

    original: Response
    turn: LiveTurn
    spell: Spell

    def verdict(self) -> Verdict:
        """How the two compare."""
        return judge(self.original, self.turn.response, self.spell)


async def paced(events: Sequence[ResponseEvent], *, original_pace: bool) -> AsyncIterator[ResponseEvent]:
    """The events of a turn one by one, as far apart as they were, or at once (a re-tell).

    Deltas were stored together if they came within a tenth of a second, so the pace is that fine.
    """
    created = events[0]
    assert isinstance(created, ResponseCreated)
    began_s = asyncio.get_running_loop().time()
    for event in events:
        if original_pace:
            due_s = began_s + (event.at_ms - created.at_ms) / 1000
            await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
        yield event


def _not_over(response_id: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{response_id}' has not ended yet; a turn can be replayed when it is over.", code="not_ended"
    )

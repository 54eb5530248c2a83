"""The law of D-24: warmth changes neither what the model reads nor what it answers, only what that costs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.prefix_cache.services import Running, first_delta, running, words
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import ResponsesError
from turnlog.domain.items import MessageItem
from turnlog.domain.messages import Message
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import api_status


class Move(NamedTuple):
    """A turn that a client asks for.

    `after` says which of the turns so far it goes on from, counted from the latest; None begins anew.
    `resends` whether it sends the history again instead of the id.
    """

    text: str
    after: int | None
    resends: bool
    fields: dict[str, Any]


class Outcome(NamedTuple):
    """What became of it: what the model read, what it answered, and how that ended."""

    digest: str
    answer: str
    status: str
    instructions: str | None


moves = st.builds(
    Move,
    text=st.sampled_from(("hi", words(30), words(70), words(70, "b"), "tell", "cut", "add", "boom", "hang")),
    after=st.none() | st.integers(0, 3),
    resends=st.booleans(),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "instructions": st.sampled_from(("", "be kind")),
            "prompt_cache_key": st.sampled_from(("first-key", "second-key")),
            "cache_salt": st.sampled_from(("", "s")),
            "truncation": st.just("auto"),
        },
    ),
)


class Client:
    """Makes the moves on one server, and remembers what it was told."""

    def __init__(self, service: Running) -> None:
        self._service = service
        self._turns: list[tuple[LiveTurn, tuple[Message, ...]]] = []

    async def make(self, move: Move) -> Outcome | str:
        """What became of the turn, or the code by which it was refused."""
        before: LiveTurn | None = None
        history: tuple[Message, ...] = ()
        if move.after is not None and self._turns:
            before, history = self._turns[-1 - move.after % len(self._turns)]
        said = (*history, Message("user", move.text))
        request = TurnRequest(
            model="scripted",
            input=said if move.resends else said[-1:],
            previous_response_id=before.response.id if before and not move.resends else None,
            **move.fields,
        )
        try:
            turn = await self._service.service.turns.begin(request)
        except ResponsesError as refusal:
            return refusal.code
        if move.text == "hang":
            await first_delta(turn)
            turn.abort("cancelled")
        await turn.settled.wait()
        answer = "".join(item.text for item in turn.response.items if isinstance(item, MessageItem))
        self._turns.append((turn, (*said, Message("assistant", answer))))
        assert turn.response.started
        return Outcome(
            turn.response.started.prompt.digest,
            answer,
            api_status(turn.response),
            turn.response.created.instructions,
        )


async def lived(conversation: Sequence[Move], **bounds: Any) -> list[Outcome | str]:
    """What became of each move on a server of its own."""
    async with running(**bounds) as service:
        client = Client(service)
        return [await client.make(move) for move in conversation]


@pytest.mark.parametrize("bounds", [{}, {"warm_entries": 1}], ids=["many caches", "one cache"])
@given(conversation=st.lists(moves, min_size=2, max_size=8))
@settings(max_examples=25)
async def test_warm_and_cold_the_same_is_read_and_answered(
    bounds: dict[str, Any], conversation: list[Move]
) -> None:
    """D-24, D-15: whatever was asked before, by whichever name a cache was looked for, found or not."""
    warm = await lived(conversation, **bounds)

    assert warm == await lived(conversation, warm_entries=0)

"""What the idle sweeper is told of turns, by a service with a real store."""

import asyncio
from pathlib import Path

import pytest

from tests.app.services import asked, running
from tests.app.turns.test_turns import first_delta
from tests.fakes.journal import HeldJournal
from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.app.models.idle import IdleSweeper
from turnlog.app.server import bootstrap
from turnlog.domain.errors import ResponsesError
from turnlog.domain.request import TurnRequest

Calls = list[str]

AT_ONCE_MS = 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the sweeper of a service is told, in order."""
    made: Calls = []

    class Noting(IdleSweeper):
        def begin(self) -> None:
            made.append("begin")
            super().begin()

        def end(self) -> None:
            made.append("end")
            super().end()

    monkeypatch.setattr(bootstrap, "IdleSweeper", Noting)
    return made


@pytest.fixture
def drained(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when an engine gives its free memory back."""
    event = asyncio.Event()
    monkeypatch.setattr(ScriptedEngine, "release_memory", lambda _: event.set())
    return event


@pytest.mark.parametrize(
    "refused",
    [
        asked("word " * 200),
        asked("hi", previous_response_id="resp_unknown"),
        TurnRequest(model="gpt-5", input=asked("hi").input),
    ],
    ids=["too long", "no chain", "no model"],
)
async def test_a_request_that_is_refused_was_never_under_way(
    tmp_path: Path, calls: Calls, refused: TurnRequest
) -> None:
    """R-376, G-158."""
    async with running(tmp_path) as service:
        with pytest.raises(ResponsesError):
            await service.turns.begin(refused)

    assert calls == []


@pytest.mark.parametrize("text", ["hi", "boom", "exhaust"])
async def test_a_turn_that_stands_or_fails_ends_once(
    tmp_path: Path, calls: Calls, drained: asyncio.Event, text: str
) -> None:
    """R-375, R-378."""
    async with running(tmp_path, idle_clear_cache_ms=AT_ONCE_MS) as service:
        turn = await service.turns.begin(asked(text))
        await drained.wait()
        await turn.settled.wait()

    assert calls == ["begin", "end"]


async def test_a_turn_that_is_left_ends_once(tmp_path: Path, calls: Calls, drained: asyncio.Event) -> None:
    """R-378, R-379, G-157: whoever stops it, however often."""
    async with running(tmp_path, idle_clear_cache_ms=AT_ONCE_MS) as service:
        turn = await service.turns.begin(asked("hang"))
        await first_delta(turn)
        assert (calls, drained.is_set()) == (["begin"], False)

        turn.abort("client_abort")
        turn.abort("cancelled")
        await drained.wait()

    assert calls == ["begin", "end"]


async def test_a_turn_that_is_left_before_it_has_begun_ends_once(
    tmp_path: Path, calls: Calls, drained: asyncio.Event
) -> None:
    """R-378, G-157."""
    async with running(tmp_path, idle_clear_cache_ms=AT_ONCE_MS) as service:
        turn = await service.turns.begin(asked("hi"))
        turn.abort("client_abort")
        await drained.wait()

    assert calls == ["begin", "end"]


async def test_a_wedged_write_does_not_keep_the_memory(
    tmp_path: Path, calls: Calls, drained: asyncio.Event
) -> None:
    """R-380, G-159."""
    held = HeldJournal()
    async with running(tmp_path, wrap=held, idle_clear_cache_ms=AT_ONCE_MS) as service:
        turn = await service.turns.begin(asked("hi"))

        await drained.wait()

        assert (turn.ended.is_set(), turn.settled.is_set(), calls) == (True, False, ["begin", "end"])
        held.land()

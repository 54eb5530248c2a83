"""`durability = strict`: whatever a client has seen is stored (D-22)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.services import asked, running
from tests.fakes.journal import HeldJournal, RefusingJournal
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import StorageRefusedError
from turnlog.domain.events import (
    ItemOpened,
    ResponseCreated,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
)


async def told(turn: LiveTurn) -> list[dict[str, Any]]:
    """The data of all frames of a turn."""
    frames = [frame async for frames in turn.frames.read() for frame in frames]
    return [json.loads(frame.split(b"\ndata: ")[1].split(b"\n")[0]) for frame in frames]


async def test_a_frame_leaves_only_after_its_event_is_stored(tmp_path: Path) -> None:
    held = HeldJournal(ResponseCreated)
    async with running(tmp_path, wrap=held, durability="strict") as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(TurnCommitted)
        assert (len(turn.frames), turn.ended.is_set()) == (0, False)

        held.land()

        events = await told(turn)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.completed"
        assert turn.ended.is_set()


async def test_the_terminal_waits_for_its_own_write(tmp_path: Path) -> None:
    held = HeldJournal()
    async with running(tmp_path, wrap=held, durability="strict") as service:
        turn = await service.turns.begin(asked("hi"))
        await held.until(TurnCommitted)
        assert not turn.ended.is_set()

        held.land()
        await turn.ended.wait()

        stored = await service.retrieval.events(turn.response.id)
        assert any(isinstance(recorded.event, TurnCommitted) for recorded in stored)


FULL = StorageRefusedError("full", "the disk is full")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ResponseCreated, "hi"),
        (ResponseCreated, "hang"),
        (ItemOpened, "hi"),
        (ItemOpened, "hang"),
        (TurnCommitted, "hi"),
    ],
)
async def test_what_the_store_refuses_the_client_never_sees(
    tmp_path: Path, kind: type[ResponseEvent], text: str
) -> None:
    """The running turn ends as `storage_full`, however far it had come."""
    async with running(tmp_path, wrap=RefusingJournal(kind, FULL), durability="strict") as service:
        turn = await service.turns.begin(asked(text))

        events = await told(turn)

        assert [event["type"] for event in events[:2]] == [
            "response.created",
            "response.in_progress",
        ]
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"]["error"]["code"] == "storage_full"
        assert isinstance(turn.response.ended, TurnFailed)

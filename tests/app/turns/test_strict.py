"""`durability = strict`: whatever a client has seen is stored (D-22)."""

import json
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.app.services import Held, asked, running
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import StorageRefusedError
from turnlog.domain.events import (
    ItemOpened,
    Recorded,
    ResponseCreated,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
)
from turnlog.domain.ports import EventJournal


async def told(turn: LiveTurn) -> list[dict[str, Any]]:
    """The data of all frames of a turn."""
    frames = [frame async for frames in turn.frames.read() for frame in frames]
    return [json.loads(frame.split(b"\ndata: ")[1].split(b"\n")[0]) for frame in frames]


async def test_a_frame_leaves_only_after_its_event_is_stored(tmp_path: Path) -> None:
    held = Held(ResponseCreated)
    async with running(tmp_path, wrap=held, durability="strict") as service:
        turn = await service.turns.begin(asked("hi"))
        await held.journal.until(TurnCommitted)
        assert (len(turn.frames), turn.ended.is_set()) == (0, False)

        held.journal.land()

        events = await told(turn)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.completed"
        assert turn.ended.is_set()


async def test_the_terminal_waits_for_its_own_write(tmp_path: Path) -> None:
    held = Held(TurnCommitted)
    async with running(tmp_path, wrap=held, durability="strict") as service:
        turn = await service.turns.begin(asked("hi"))
        await held.journal.until(TurnCommitted)
        assert not turn.ended.is_set()

        held.journal.land()
        await turn.ended.wait()

        stored = await service.retrieval.events(turn.response.id)
        assert any(isinstance(recorded.event, TurnCommitted) for recorded in stored)


class FullFrom:
    """A journal whose store is full from the first event of a kind on."""

    def __init__(self, kind: type[ResponseEvent]) -> None:
        self._kind = kind
        self._full = False
        self._journal: EventJournal

    def __call__(self, journal: EventJournal) -> EventJournal:
        self._journal = journal
        return self

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Refuse, or pass on."""
        self._full = self._full or any(isinstance(recorded.event, self._kind) for recorded in events)
        if not self._full:
            return self._journal.append(events)
        refused: Future[None] = Future()
        refused.set_exception(StorageRefusedError("full", "the disk is full"))
        return refused

    def close(self) -> None:
        """Close the journal behind."""
        self._journal.close()


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
    async with running(tmp_path, wrap=FullFrom(kind), durability="strict") as service:
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

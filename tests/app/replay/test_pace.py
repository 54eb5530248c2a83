"""A re-tell keeps the pace at which things happened, if it is asked to."""

from collections.abc import Iterator

import pytest

from tests.domain.stories import COMMITTED, CREATED, PERSISTED, STARTED
from tests.fakes.clock import VirtualLoop
from turnlog.app.replay.replays import paced
from turnlog.domain.events import ResponseEvent

STORY: list[ResponseEvent] = [CREATED, STARTED, COMMITTED, PERSISTED]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """Time that passes only when a test says so."""
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_events_are_told_as_far_apart_as_they_were(loop: VirtualLoop) -> None:
    told: list[tuple[float, ResponseEvent]] = []

    async def listen() -> None:
        async for event in paced(STORY):
            told.append((round(loop.time(), 6), event))

    listening = loop.create_task(listen())
    loop.run_for(10.0)

    assert listening.done()
    assert told == list(zip([0.0, 0.01, 2.0, 2.1], STORY, strict=True))

"""What any version has written can be read for ever, and is told in the same bytes."""

from pathlib import Path

import msgspec
import pytest

from turnlog.adapters.openai.frames import frames
from turnlog.domain.events import ResponseEvent
from turnlog.domain.response import fold

HISTORIES = sorted(Path(__file__).parent.glob("*/*.jsonl"))
IDS = [f"{path.parent.name}/{path.stem}" for path in HISTORIES]


def read(path: Path) -> list[ResponseEvent]:
    """The events of a history."""
    lines = path.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=ResponseEvent) for line in lines]


def test_there_are_histories() -> None:
    assert len(HISTORIES) >= 9


@pytest.mark.parametrize("path", HISTORIES, ids=IDS)
def test_a_recorded_history_is_told_in_the_bytes_it_was_told_in(path: Path) -> None:
    assert b"".join(frames(read(path), fold(read(path)))) == path.with_suffix(".sse").read_bytes()


@pytest.mark.parametrize("path", HISTORIES, ids=IDS)
def test_every_prefix_of_a_recorded_history_folds(path: Path) -> None:
    events = read(path)

    for length in range(1, len(events) + 1):
        fold(events[:length])


@pytest.mark.parametrize("path", HISTORIES, ids=IDS)
def test_a_recorded_history_is_written_as_it_was(path: Path) -> None:
    assert [msgspec.json.encode(event) for event in read(path)] == path.read_bytes().splitlines()

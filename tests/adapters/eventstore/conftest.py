"""A real store in a file of its own, closed after the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.eventstore.faults import FaultyStore, opened_faulty
from tests.adapters.eventstore.stories import Store, opened
from turnlog.adapters.eventstore import journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turnlog.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


@pytest.fixture
def faulty(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    """A store whose writer meets faults, and tries again without a pause worth mentioning."""
    monkeypatch.setattr(journal, "RETRY_PAUSE_S", 0.001)
    with opened_faulty(path) as store:
        yield store

"""A real store in a file of its own, closed after the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.eventstore.stories import Store, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turnlog.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store

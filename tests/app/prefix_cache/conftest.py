"""Engines for the tests of warm caches."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fakes.engine import CountedEngine, UncutEngine


@pytest.fixture
def engine() -> Iterator[CountedEngine]:
    """An engine that reads and writes nothing; only its handles are used."""
    with closing(CountedEngine()) as engine:
        yield engine


@pytest.fixture
def uncut() -> Iterator[UncutEngine]:
    """The same, and its handles cannot be cut back."""
    with closing(UncutEngine()) as engine:
        yield engine

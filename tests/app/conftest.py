"""What the tests of the use cases share."""

import logging
from collections.abc import Iterator

import pytest

from tests.app.turns.writes import LimitsMs, Lines


@pytest.fixture
def limits_ms(monkeypatch: pytest.MonkeyPatch) -> LimitsMs:
    """Sets the soft and the hard limit of writes, in milliseconds."""

    def set_to(soft: str, hard: str) -> None:
        monkeypatch.setenv("MLX_POST_COMMIT_PERSIST_TIMEOUT_MS", soft)
        monkeypatch.setenv("MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS", hard)

    return set_to


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What turnlog logs."""
    handler = Lines()
    logging.getLogger("turnlog").addHandler(handler)
    yield handler
    logging.getLogger("turnlog").removeHandler(handler)

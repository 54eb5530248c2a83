"""What holds for every test of the model."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _short_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations expire while the model is played, and are kept by their use (D-37)."""
    monkeypatch.setenv("MLX_RESPONSE_RETENTION_SECONDS", "90")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of faults are injected; what the server logs of them would bury what is found."""
    log = logging.getLogger("turnlog")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    yield
    log.setLevel(level)

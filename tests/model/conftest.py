"""What holds for every test of the model."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of faults are injected; what the server logs of them would bury what is found."""
    log = logging.getLogger("turnlog")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    yield
    log.setLevel(level)

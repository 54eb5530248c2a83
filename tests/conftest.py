"""What holds for every test."""

import inspect
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.waiting import bounded

# Workers of pytest-xdist have the size of a terminal that is not there, and tables would be cut to it.
for _size in ("COLUMNS", "LINES"):
    os.environ.pop(_size, None)

# No test judges time: on a busy machine a slow example is no failure. CI draws the same examples each time.
settings.register_profile("turnlog", deadline=None, derandomize=True)
settings.load_profile("turnlog")

AWAITED_S = 20.0
"""How long a coroutine test may take: they all have scripted engines."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that awaits what never comes fails by an assertion, long before pytest-timeout ends it."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = bounded(item.obj, AWAITED_S)


@pytest.fixture(scope="session")
def model_cache(request: pytest.FixtureRequest) -> Path:
    """Where prepared models are kept from one run to the next, as `TURNLOG_CACHE`."""
    cache = request.config.cache
    assert cache
    return cache.mkdir("turnlog")

"""One server with the scripted engine for the tests that need nothing special."""

from collections.abc import Iterator

import httpx
import pytest

from tests.app.scripts import SCRIPT
from tests.faults.witness import scripted
from tests.serving import RunningServer

MOST_BODY_BYTES = 1_000_000


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that plays `tests.app.scripts.SCRIPT` and takes a megabyte."""
    environ = {"TURNLOG_MAX_BODY_BYTES": str(MOST_BODY_BYTES)}
    with scripted(tmp_path_factory.mktemp("security"), SCRIPT, **environ) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of it."""
    with server.http as client:
        yield client

"""One server with the scripted engine for all tests of the HTTP layer."""

from collections.abc import Iterator

import httpx
import pytest

from tests.app.scripts import write_script
from tests.serving import RunningServer, serving


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that plays `tests.app.scripts.SCRIPT`."""
    folder = tmp_path_factory.mktemp("http")
    script = write_script(folder)
    with serving(folder / "turnlog.db", "--engine", "scripted", "--script", str(script)) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of it."""
    with server.http as client:
        yield client

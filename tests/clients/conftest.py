"""Servers with the scripted engine for all clients."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.clients.script import write_client_script
from tests.serving import RunningServer, serving


def pytest_configure(config: pytest.Config) -> None:
    """`clients` marks what needs the JavaScript clients; `make clients` installs them and runs it."""
    config.addinivalue_line("markers", "clients: runs clients that npm installs (make clients)")


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that plays `tests.clients.script.SCRIPT`."""
    with _playing(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.fixture(scope="package")
def restless_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The same, but it gives signs of life all the time."""
    with _playing(tmp_path_factory.mktemp("restless"), TURNLOG_HEARTBEAT_S="0.1") as running:
        yield running


def _playing(folder: Path, **environ: str) -> AbstractContextManager[RunningServer]:
    script = write_client_script(folder)
    return serving(folder / "turnlog.db", "--engine", "scripted", "--script", str(script), **environ)


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    """The client as its users make it, but for retries, which would hide a fault."""
    with OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def aclient(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    """The same for asyncio."""
    async with AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        yield client

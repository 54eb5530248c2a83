"""A real server in a process of its own, as `turnlog serve` starts it, on a real socket."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

from tests.waiting import SOON_S

LONG_S = 60.0
"""How long a test waits for a process to end, or to do all of its work."""

PROGRAM = (sys.executable, "-m", "turnlog.app")


class Client(httpx.Client):
    """A client whose test fails if a request is not answered soon."""

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        try:
            return super().send(request, **options)
        except httpx.ReadTimeout as error:
            raise AssertionError(f"no answer to {request.method} {request.url}") from error


@dataclass
class RunningServer:
    """A server that answers; `database` is the file of its log."""

    process: subprocess.Popen[str]
    address: str
    database: Path

    @property
    def http(self) -> httpx.Client:
        """A fresh client of this server."""
        return self.client()

    def client(self, *, key: str | None = None, timeout_s: float = SOON_S) -> httpx.Client:
        """A fresh client of this server, for the owner of that key."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Client(base_url=self.address, timeout=timeout_s, headers=headers)

    def stop(self) -> int:
        """Send SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LONG_S)


def turnlog(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        env=os.environ | {"COLUMNS": "120"} | environ,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


def serving(database: Path, *arguments: str, **environ: str) -> AbstractContextManager[RunningServer]:
    """`turnlog serve` on a free port, until the block is left."""
    return started(database, arguments, environ)


@contextmanager
def started(
    database: Path,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    stderr: IO[str] | None = None,
    program: Sequence[str] = PROGRAM,
    folder: Path | None = None,
) -> Iterator[RunningServer]:
    """As `serving`; the server logs to `stderr`. `folder` is the working directory of `program`."""
    process = subprocess.Popen(
        [*program, "serve", "--port", "0", "--db", str(database), *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "300", **environ},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",  # the terminal may be one that is not UTF-8
    )
    try:
        yield RunningServer(process, _address(process), database)
    finally:
        process.kill()
        process.wait(LONG_S)
        assert process.stdout
        process.stdout.close()


def _address(process: "subprocess.Popen[str]") -> str:
    """Where the server says that it answers; it says so once it does."""
    assert process.stdout
    for line in process.stdout:
        if found := re.search(r"http://\S+:\d+", line):
            return found.group().rstrip(",")
    raise AssertionError(f"the server ended with code {process.wait(LONG_S)} before it answered")


@contextmanager
def connected(server: RunningServer) -> Iterator[socket.socket]:
    """A bare connection that takes little at a time, for what no HTTP client would do."""
    host, port = server.address.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.settimeout(SOON_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        yield client

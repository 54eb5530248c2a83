"""A server for the length of one command, when none runs for the log."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from turnlog.app.cli.console import err
from turnlog.app.cli.server import NoServerError, Server
from turnlog.domain.errors import ResponsesError


class OwnServerError(ResponsesError):
    """The server that was to be started for this command did not start; the sentence is its own."""


@contextmanager
def any_server(database: Path) -> Iterator[Server]:
    """The running server of the log, else one that is started for the block.

    That one serves what the `TURNLOG_*` variables say, on this machine only, on a port that is free.

    Raises:
        OwnServerError: it did not start.
    """
    try:
        server = Server(database)
    except NoServerError:
        err.print("[dim]No server is running for this log; starting one for this command.[/]")
        with _started(database), closing(Server(database)) as own:
            yield own
        return
    with closing(server):
        yield server


@contextmanager
def _started(database: Path) -> Iterator[None]:
    arguments = ["serve", "--host", "127.0.0.1", "--port", "0", "--db", str(database)]
    # What it says goes to a file: a pipe that nobody reads would stop it when it is full.
    with TemporaryFile("w+") as said:
        # -P: a folder named app where the command is run is not this program.
        process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-P", "-m", "turnlog.app", *arguments],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        try:
            assert process.stdout
            # It prints its address when it answers, and nothing if it does not start.
            if not process.stdout.readline():
                process.wait()
                said.seek(0)
                lines = said.read().strip().splitlines() or ["The server did not start."]
                raise OwnServerError(lines[-1].removeprefix("turnlog: "))
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()

"""A real server whose every printed byte is kept: both formats, all levels, a line for each request."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.app.scripts import Json, write_script
from tests.serving import RunningServer, started
from turnlog.app.operations.logs import LogFormat


@dataclass
class Printing:
    """A server, and where its stderr goes."""

    server: RunningServer
    errors: Path

    def stderr(self) -> str:
        """What it has said there; all of it once it was stopped."""
        return self.errors.read_text(encoding="utf-8")

    def text(self) -> str:
        """Everything it said, on stdout as well. Stops it."""
        assert self.server.stop() == 0
        assert self.server.process.stdout
        return self.server.process.stdout.read() + self.stderr()


@contextmanager
def printing(
    folder: Path, script: Json, log_format: LogFormat = "text", **environ: str
) -> Iterator[Printing]:
    """A server that plays the script and says all that it can say."""
    errors = folder / "stderr"
    options = ("--engine", "scripted", "--script", str(write_script(folder, script)))
    talkative = {
        "TURNLOG_LOG_FORMAT": log_format,
        "TURNLOG_LOG_LEVEL": "debug",
        "TURNLOG_ACCESS_LOG": "true",
    }
    with (
        errors.open("w", encoding="utf-8") as stderr,
        started(folder / "turnlog.db", options, talkative | environ, stderr=stderr) as server,
    ):
        yield Printing(server, errors)

"""A server to be fuzzed: the scripted engine, so that each turn costs nothing and what it says is known."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.app.scripts import ADD_1, HELLO, STOP, calling, entry, write_script
from tests.serving import RunningServer, started

SCRIPT = {
    "context_window": 5_000,
    "turns": [
        calling("call", ADD_1, said="<tool_call>"),
        entry("think", {"reasoning": "hm"}, {"text": "Hi"}, STOP),
        HELLO,
    ],
}


@contextmanager
def fuzzed(folder: Path, **environ: str) -> Iterator[RunningServer]:
    """A server whose log lines go to `log` in the folder."""
    arguments = ("--engine", "scripted", "--script", str(write_script(folder, SCRIPT)))
    with (
        (folder / "log").open("w") as log,
        started(folder / "turnlog.db", arguments, environ, stderr=log) as running,
    ):
        yield running

"""Log lines never make anybody wait (T2-05)."""

import logging
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.scripts import SCRIPT, write_script
from tests.serving import started
from tests.waiting import SOON_S, until
from turnlog.app.operations.line_queue import LineQueue

log = logging.getLogger("turnlog")


class Pipe:
    """A pipe with a small queue before it, to which turnlog logs."""

    def __init__(self, max_bytes: int = 10_000, encoding: str = "utf-8") -> None:
        self.reader, writer = os.pipe()
        self.stream = os.fdopen(writer, "w", encoding=encoding)
        self.queue = LineQueue(self.stream, max_bytes)
        self.handler = logging.StreamHandler(self.queue)
        log.addHandler(self.handler)
        self.told = b""

    def read(self) -> bytes:
        """All that has come so far, and at least a byte more."""
        assert select.select([self.reader], [], [], SOON_S)[0], f"nothing came behind {self.told[-100:]!r}"
        self.told += os.read(self.reader, 1 << 20)
        return self.told

    def close(self) -> None:
        """Nobody reads any more."""
        log.removeHandler(self.handler)
        os.close(self.reader)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe that is read as the test says."""
    made = Pipe()
    yield made
    made.close()


def test_lines_come_in_order_and_whole(pipe: Pipe) -> None:
    """T2-05: also those longer than a pipe takes at once."""
    log.warning("first")
    log.warning("second")
    with pipe.queue:
        pass

    assert pipe.read() == b"first\nsecond\n"


def test_what_a_stuck_pipe_does_not_take_is_dropped_and_counted(pipe: Pipe) -> None:
    """T2-05: nobody waits, and whoever reads later is told how much is missing."""
    for number in range(1_000):
        log.warning("%d %s", number, "x" * 1_000)

    def accounted() -> bool:
        lines = pipe.read().decode().splitlines()
        numbers = [int(line.split()[0]) for line in lines if line.endswith("x")]
        dropped = [int(line.split()[1]) for line in lines if line.endswith("is blocked")]
        assert numbers == sorted(set(numbers))
        return len(numbers) + sum(dropped) == 1_000 and bool(numbers and dropped)

    until(accounted)


def test_a_character_that_the_stream_cannot_take_is_escaped() -> None:
    """T2-16."""
    made = Pipe(encoding="ascii")
    log.warning("qwén → 天")

    assert made.read() == b"qw\\xe9n \\u2192 \\u5929\n"
    made.close()


def test_a_pipe_whose_reader_is_gone_stops_nobody(pipe: Pipe) -> None:
    """T2-05, T2-16."""
    reader = pipe.reader
    pipe.reader = os.dup(reader)
    os.close(reader)
    os.close(pipe.reader)
    pipe.reader = os.open(os.devnull, os.O_RDONLY)

    log.warning("first")
    log.warning("second")

    with pipe.queue:
        pass


@pytest.mark.parametrize("gone", [False, True], ids=["stuck", "broken"])
def test_a_server_whose_stderr_nobody_reads_goes_on_and_ends(tmp_path: Path, gone: bool) -> None:
    """T2-05: a thousand lines more than the pipe takes; and it ends with code 0."""
    reader, writer = os.pipe()
    options = ("--engine", "scripted", "--script", str(write_script(tmp_path, SCRIPT)))
    environ = {"TURNLOG_ACCESS_LOG": "true"}
    with (
        os.fdopen(writer, "w") as stderr,
        started(tmp_path / "turnlog.db", options, environ, stderr=stderr) as server,
    ):
        stderr.close()
        if gone:
            os.close(reader)
        with server.http as http:
            statuses = {http.get("/health").status_code for _ in range(1_000)}
        code = server.stop()

    if not gone:
        os.close(reader)
    assert (statuses, code) == ({200}, 0)

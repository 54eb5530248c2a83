"""Whatever a terminal or a pipe takes: no command ends with a traceback, and no text acts on it (T2-16)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.app.http.test_turns import create
from tests.app.scripts import STOP, write_script
from tests.serving import RunningServer, serving, turnlog
from tests.waiting import SOON_S, until

HOSTILE = "qwén “→” 天気 \x1b[2J \x9b2J \u202eevil \u2028 \u2066x"
MODEL = "qwén天"
ENCODINGS = ["utf-8", "latin-1", "cp1252", "ascii"]


@pytest.fixture(scope="module", params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> str:
    """What the terminal takes."""
    name: str = request.param
    return name


@contextmanager
def serving_hostile(folder: Path, encoding: str) -> Iterator[RunningServer]:
    """A server at such a terminal, with a model whose name most of them lack."""
    script = write_script(folder, {"turns": [{"steps": [{"text": HOSTILE}, STOP]}]})
    options = ("--engine", "scripted", "--model", f"{MODEL}={script}")
    with serving(folder / "turnlog.db", *options, PYTHONIOENCODING=encoding) as running:
        yield running


def made(server: RunningServer) -> str:
    """The id of a turn that was asked and answered in such characters."""
    with server.http as http:
        response_id: str = create(http, HOSTILE, model=MODEL)["id"]
    return response_id


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, encoding: str) -> Iterator[RunningServer]:
    """A server for each encoding."""
    with serving_hostile(tmp_path_factory.mktemp("terminals"), encoding) as running:
        yield running


@pytest.fixture(scope="module")
def response_id(server: RunningServer) -> str:
    """Its turn."""
    return made(server)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server at a terminal that takes everything."""
    with serving_hostile(tmp_path_factory.mktemp("plain"), "utf-8") as running:
        yield running


@pytest.fixture(scope="module")
def plain_id(plain: RunningServer) -> str:
    """Its turn."""
    return made(plain)


def run(server: RunningServer, *arguments: str, encoding: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command at such a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "turnlog.app", *arguments, "--db", str(server.database)],
        env=os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "120"},
        capture_output=True,
        timeout=6 * SOON_S,
        check=False,
    )


COMMANDS = [
    "ls",
    "ls --json",
    "log ID",
    "log ID --json",
    "chain ID",
    "chain ID --json",
    "compare ID ID",
    "models",
    "models loads",
    "keys list",
    "replay ID --tell",
    "replay ID --tell --json",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_what_a_terminal_lacks_is_escaped(
    server: RunningServer, response_id: str, encoding: str, line: str
) -> None:
    """T2-16: and nothing moves its cursor or turns its reading order."""
    done = run(server, *line.replace("ID", response_id).split(), encoding=encoding)

    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr.decode(errors="replace")
    written = done.stdout.decode("utf-8" if "--json" in line else encoding)
    assert not set(written) & set("\x1b\x9b\u202e\u2066")
    if "--json" in line:
        assert all(json.loads(each) for each in written.splitlines())


def test_json_says_the_same_as_before(server: RunningServer, response_id: str, encoding: str) -> None:
    """T2-16: what is escaped is read as what it was."""
    lines = run(server, "log", response_id, "--json", encoding=encoding).stdout.splitlines()

    assert HOSTILE in texts([json.loads(line) for line in lines])


def texts(value: Any) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inside for text in texts(each)]


@pytest.mark.parametrize("stream", ["utf-8", "ascii"])
def test_a_log_goes_through_a_file_whatever_its_name_and_the_terminal(
    plain: RunningServer, plain_id: str, stream: str, tmp_path: Path
) -> None:
    """T2-16: export, import, vacuum and reindex, and what they refuse."""
    folder = os.fsencode(tmp_path) + "/é天\x1b[2J\u202e".encode() + b"\xff"
    Path(os.fsdecode(folder)).mkdir()
    file, log = os.fsdecode(folder + b"/log.jsonl"), os.fsdecode(folder + b"/other.db")

    def said(status: int, *arguments: str, database: str = log) -> bytes:
        done = subprocess.run(
            [sys.executable, "-m", "turnlog.app", *arguments, "--db", database],
            env=os.environ | {"PYTHONIOENCODING": stream, "COLUMNS": "400"},
            capture_output=True,
            timeout=6 * SOON_S,
            check=False,
        )
        said = (done.stdout + done.stderr).decode()
        assert (done.returncode, "Traceback" in said) == (status, False), said
        assert not set(said) & set("\x1b\x9b\u202e\u2066")
        return done.stdout

    said(0, "export", "--out", file, database=str(plain.database))
    said(2, "export", "--out", file, database=str(plain.database))
    said(0, "import", file)
    said(2, "import", file)
    said(0, "vacuum")
    said(0, "reindex")
    exported = said(0, "log", plain_id, "--json")
    said(2, "import", f"{file}.missing", database=f"{log}.new")

    assert HOSTILE in texts([json.loads(line) for line in exported.splitlines()])


@pytest.mark.parametrize("line", [*COMMANDS, "ls --help", "log nope“", "ls --status 天"])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(
    plain: RunningServer, plain_id: str, line: str
) -> None:
    """T2-16: as in `turnlog ls | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    arguments = line.replace("ID", plain_id).split()
    if "--help" not in arguments:
        arguments += ["--db", str(plain.database)]

    done = subprocess.run(
        [sys.executable, "-m", "turnlog.app", *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=6 * SOON_S,
        check=False,
    )
    os.close(writer)

    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_server_goes_on_when_nobody_reads_its_announcement(tmp_path: Path) -> None:
    """T2-16: `turnlog serve | head -1`."""
    script = write_script(tmp_path, {"turns": [{"steps": [{"text": "hi"}, STOP]}]})
    reader, writer = os.pipe()
    os.close(reader)
    database = tmp_path / "turnlog.db"
    options = ["--port", "0", "--engine", "scripted", "--script", str(script), "--db", str(database)]
    process = subprocess.Popen(
        [sys.executable, "-m", "turnlog.app", "serve", *options],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    try:
        listed = until(lambda: turnlog("models", "--db", str(database)).stdout)
        assert "scripted" in listed
        assert process.poll() is None
    finally:
        process.terminate()
        _, said = process.communicate(timeout=6 * SOON_S)

    assert (process.returncode, "Traceback" in said) == (0, False)

"""README and docs as a reader uses them: every console, sh and python block is run, as written and in order.

`python -m tests.documents` rewrites the outputs that a `$ command` of a console block shows.

A comment just before a block says that it is not run, and perhaps what is run instead:
`<!-- not run: it downloads a model; instead: turnlog serve … -->`. `<!-- stop the server -->` stands where a
reader is told to stop the server.
"""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import httpx

from tests.serving import LONG_S
from tests.waiting import until
from turnlog.adapters.eventstore.lock import holder

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

LANGUAGES = ("console", "sh", "python")
"""What is run. Other fences show data or a drawing."""

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+?)(?:; instead: (?P<instead>[^>]+?))? -->\n)?"
    rf"^```(?P<language>{'|'.join(LANGUAGES)})\n(?P<code>(?:.*\n)*?)```$|<!-- stop the server -->",
    re.MULTILINE,
)
_COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n?(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_SERVE = re.compile(r"^(?:\w+=\S+ )*turnlog serve\b(?:.*\\\n)*.*$", re.MULTILINE)
SHOWN_ADDRESS = "127.0.0.1:8000"

_ID = re.compile(r"\b(?:resp|msg|rs|fc|call|key)_[0-9a-f]{8,32}\b|\btl_[\w-]{43}")
_ID_OR_ITS_BEGINNING = re.compile(r"\b(?:resp|key)_[0-9a-f]+\b|\btl_[\w-]{43}")
_VARYING = (
    re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?"),
    re.compile(r"\b\d+ (?:s|min) ago"),
    re.compile(r"\+\d+\.\d{3}s"),
    re.compile(r"\b\d[\d,.]* (?:ms|s|B|kB|MB|GB|bytes)\b"),
    re.compile(r'(?<=_ms": )\d+(?:\.\d+)?|(?<=_ms":)\d+(?:\.\d+)?'),
    re.compile(r"(?<![\w/:.~])/(?:[\w.+-]+/)+"),
)
"""What differs each time: times, durations, sizes, and the folder of a file."""

_PROGRESS = re.compile(r"^\w+ …\n", re.MULTILINE)
"""Stands for a bar that a terminal shows and takes away again."""

_LEFT_OUT = ("COLUMNS", "LINES", "MLX_", "TURNLOG_")
"""What would make a difference of who runs this."""

_STORED = re.compile(r"^turnlog_pending_writes 0\.0$(?s:.*)^turnlog_store_queued_bytes 0\.0$", re.MULTILINE)


class Block(NamedTuple):
    """A block of a document, or a place where the server is stopped (`language` is then "").

    `reason` is why it is not run; None if it is.
    """

    language: str
    code: str
    start: int
    reason: str | None
    instead: str | None


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a document that are run, or marked as not run."""
    for match in _BLOCK.finditer(text):
        yield Block(
            match["language"] or "",
            match["code"] or "",
            match.start("code"),
            match["reason"],
            match["instead"],
        )


def rewritten(text: str) -> str:
    """The document with the outputs that its commands have here and now.

    An output that differs only by ids, times, sizes and folders is left as it is.

    Raises:
        AssertionError: a command that shows no output failed.
    """
    done, written = 0, ""
    with TemporaryDirectory(prefix="turnlog-") as folder, Reader(Path(folder)) as reader:
        for block in blocks(text):
            if block.language:
                written += text[done : block.start] + reader.follow(block)
                done = block.start + len(block.code)
            else:
                reader.stop_server()
    return written + text[done:]


class Reader:
    """Somebody with a shell in a fresh folder, where `docs` and `.venv` are those of the repository.

    What a command sets or exports holds for the later ones. A server is started beside it and takes the place
    of the one before. `127.0.0.1:8000` in a document means another port here.
    """

    def __init__(self, place: Path) -> None:
        (place / "docs").symlink_to(ROOT / "docs")
        (place / ".venv").symlink_to(sys.prefix)
        (place / ".curlrc").write_text("no-progress-meter\n")  # as on a terminal
        self._place = place
        self._shell_state = place / ".shell-state"
        self._shell_state.touch()
        self._server: subprocess.Popen[str] | None = None
        port = _free_port()
        self._address = f"127.0.0.1:{port}"
        self._shown_ids: dict[str, str] = {}
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)},
            "HOME": str(place),
            "NO_PROXY": "127.0.0.1",
            "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TURNLOG_CACHE": str(place / "cache"),
            "TURNLOG_DB": str(place / "turnlog.db"),
            "TURNLOG_PORT": str(port),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_server()

    def follow(self, block: Block) -> str:
        """Do what the block says; the block, with the outputs that were seen."""
        match block:
            case Block(reason=str()):
                self._run_script(block.instead or "")
            case Block(language="sh"):
                self._run_script(block.code)
            case Block(language="python"):
                (self._place / "block.py").write_text(self._as_here(block.code))
                self._run_script("python block.py")
            case Block(language="console"):
                return _COMMAND.sub(self._run_command, block.code)
        return block.code

    def stop_server(self) -> None:
        """Press Ctrl-C in the server's terminal, if it runs."""
        if self._server:
            os.killpg(self._server.pid, signal.SIGINT)
            try:
                self._server.communicate(timeout=LONG_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._server.pid, signal.SIGKILL)
                raise
            self._server = None

    # ── commands ──

    def _run_script(self, script: str) -> None:
        """Run the commands of a script; each server in it is started and left running."""
        done = 0
        for serve in _SERVE.finditer(script):
            self._run_well(script[done : serve.start()])
            self._start_server(serve[0])
            done = serve.end()
        self._run_well(script[done:])

    def _run_well(self, commands: str) -> None:
        if commands.strip():
            code, output = self._run(f'set -e; curl() {{ command curl --fail-with-body "$@"; }}\n{commands}')
            assert code == 0, f"{commands.strip()}\n→ exit code {code}: {output}"

    def _run_command(self, match: re.Match[str]) -> str:
        """Run a `$ command` and give it back with its output; a server for which none is shown is started."""
        command, shown = match["command"], match["shown"]
        if _SERVE.fullmatch(command) and not shown:
            self._start_server(command)
            return match[0]
        _, output = self._run(command)
        return f"$ {command}\n{self._as_shown(output, shown)}"

    def _run(self, commands: str) -> tuple[int, str]:
        """The exit code of some commands, and what a terminal would show."""
        self._wait_until_stored()
        done = subprocess.run(
            ["bash", "-c", self._in_shell(f"trap 'export -p >{self._shell_state}' EXIT\n{commands}")],
            cwd=self._place,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONG_S,
            check=False,
        )
        return done.returncode, done.stdout

    def _in_shell(self, commands: str) -> str:
        """A script that knows what the ones before have set."""
        return f"set -a; . {self._shell_state}\n{self._as_here(commands)}"

    def _start_server(self, command: str) -> None:
        self.stop_server()
        self._server = subprocess.Popen(
            ["bash", "-c", self._in_shell(command)],
            cwd=self._place,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._server.stdout
        told = ""
        for line in self._server.stdout:
            told += line
            if self._address in line:
                return
        raise AssertionError(f"{command}\n→ the server did not start: {told}")

    def _wait_until_stored(self) -> None:
        """Wait until what was answered is stored: commands read the log, and the store may lag a little."""
        if not self._server:
            return
        held = (holder(file.with_suffix("")) for file in self._place.glob("*.lock"))
        token = next((each.token for each in held if each and each.address == f"http://{self._address}"), "")
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http:
            metrics = f"http://{self._address}/metrics"
            until(lambda: _STORED.search(http.get(metrics).raise_for_status().text))

    # ── what differs each time ──

    def _as_here(self, text: str) -> str:
        """What a document says, with the address and the ids that are meant here."""

        def id_here(written: re.Match[str]) -> str:
            ids = (here for here, shown in self._shown_ids.items() if shown.startswith(written[0]))
            return next(ids, written[0])

        return _ID_OR_ITS_BEGINNING.sub(id_here, text.replace(SHOWN_ADDRESS, self._address))

    def _as_shown(self, output: str, shown: str) -> str:
        """The output, or what the document shows of it if that is the same but for what differs each time."""
        for id_shown, id_here in zip(_ID.findall(shown), _ID.findall(output), strict=False):
            self._shown_ids.setdefault(id_here, id_shown)
        output = _ID.sub(lambda each: self._shown_ids.get(each[0], each[0]), output)
        output = _PROGRESS.sub("", output.replace(self._address, SHOWN_ADDRESS))
        output = re.sub(r" +$", "", output, flags=re.MULTILINE)
        output = re.sub(r"(?<!\n)\Z", "\n", output) if output else ""
        return shown if _fixed(output) == _fixed(shown) else output


def _free_port() -> int:
    """A port below those that systems give to whoever wants just any."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are in use")


def _fixed(output: str) -> str:
    """An output without what differs each time. Columns are as wide as what is in them."""
    for varying in _VARYING:
        output = varying.sub("·", output)
    return re.sub(r" +", " ", output)


def main() -> None:
    """Rewrite the outputs of all documents, or of those that are named."""
    for document in [Path(name) for name in sys.argv[1:]] or DOCUMENTS:
        document.write_text(rewritten(document.read_text()))


if __name__ == "__main__":
    main()

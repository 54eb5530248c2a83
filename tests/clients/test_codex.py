"""The Codex CLI, run as its users run it: `codex exec` in a folder, with a provider of their own.

Codex decides by its catalog what a model is offered. Three kinds are tried: a model it does not know
(functions), `gpt-5.5` (also `custom` tools) and `gpt-6.2-sol` (everything in an `additional_tools` item,
in namespaces with `custom` members).
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.app.scripts import Json
from tests.clients.npm import MODULES, node
from tests.clients.script import NOTE, READ_NOTE, SILENCE_MS
from tests.serving import LONG_S, RunningServer

pytestmark = pytest.mark.clients

CONFIG: Final = """\
model = "scripted"
model_provider = "turnlog"
check_for_update_on_startup = false
{catalog}

[analytics]
enabled = false

[model_providers.turnlog]
name = "turnlog"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "API_KEY"
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = {idle_ms}
supports_websockets = {websockets}
"""

MATH_SERVER: Final = Path(__file__).parent / "math_server.py"


@dataclass
class Codex:
    """A Codex with a home of its own, in a folder with one note."""

    home: Path
    folder: Path

    def set_up(
        self, server: RunningServer, like: str | None, *, idle_ms: int = 60_000, websockets: bool = False
    ) -> None:
        """Configure the server as the provider.

        Args:
            like: the model in Codex's catalog whose entry `scripted` gets; None leaves it unknown.
            idle_ms: after how much silence Codex gives up.
            websockets: whether it shall open a WebSocket.
        """
        self.home.mkdir()
        self.folder.mkdir()
        (self.folder / "note.txt").write_text(f"{NOTE}\n", encoding="utf-8")
        catalog = ""
        if like:
            path = self.home / "catalog.json"
            path.write_text(
                json.dumps({"models": [self._entry(like) | {"slug": "scripted"}]}), encoding="utf-8"
            )
            catalog = f"model_catalog_json = {json.dumps(str(path))}"
        config = CONFIG.format(
            catalog=catalog,
            address=server.address,
            idle_ms=idle_ms,
            websockets=json.dumps(websockets),
        )
        (self.home / "config.toml").write_text(config, encoding="utf-8")

    def ask(self, prompt: str, *arguments: str) -> list[Json]:
        """What Codex tells of a turn: each finished item without its id, then how the turn ended."""
        done = self._run(
            "exec",
            *arguments,
            "--json",
            "--skip-git-repo-check",
            # A sandbox of its own needs rights that a container may not give.
            "--dangerously-bypass-approvals-and-sandbox",
            prompt,
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        told = [event["item"] for event in events if event["type"] == "item.completed"]
        ends = [event for event in events if event["type"] in ("turn.completed", "turn.failed")]
        assert len(ends) == 1, done.stdout + done.stderr
        assert done.returncode == (ends[0]["type"] == "turn.failed")
        return [
            *(
                {key: item[key] for key in item if key != "id"}
                for item in told
                if not _is_about_the_catalog(item)
            ),
            {key: ends[0][key] for key in ends[0] if key != "usage"},
        ]

    def _entry(self, slug: str) -> Json:
        """The entry of a model in Codex's catalog."""
        catalog = json.loads(self._run("debug", "models").stdout)
        (entry,) = (model for model in catalog["models"] if model["slug"] == slug)
        return dict(entry)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [node(), MODULES / "@openai" / "codex" / "bin" / "codex.js", *arguments],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "CODEX_HOME": str(self.home),
                "API_KEY": "none",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )


def _is_about_the_catalog(item: Json) -> bool:
    """Codex complains of each model it does not know."""
    text: str = item.get("message", "")
    return item["type"] == "error" and text.startswith("Model metadata for")


@pytest.fixture(params=[None, "gpt-5.5", "gpt-6.2-sol"], ids=["unknown model", "gpt-5.5", "gpt-6.2-sol"])
def like(request: pytest.FixtureRequest) -> str | None:
    """The model that Codex takes `scripted` for."""
    param: str | None = request.param
    return param


@pytest.fixture
def codex(server: RunningServer, tmp_path: Path, like: str | None) -> Codex:
    """Codex, set up for the server."""
    codex = Codex(tmp_path / "home", tmp_path / "folder")
    codex.set_up(server, like)
    return codex


def message(text: str) -> Json:
    """What the model says."""
    return {"type": "agent_message", "text": text}


def command_run(shell_command: str, output: str) -> Json:
    """A command that Codex ran for the model."""
    return {
        "type": "command_execution",
        "command": f"/bin/bash -lc '{shell_command}'",
        "aggregated_output": output,
        "exit_code": 0,
        "status": "completed",
    }


COMPLETED: Final[Json] = {"type": "turn.completed"}


def test_a_conversation_goes_on_in_another_run(codex: Codex) -> None:
    """A1, A2, A7, B1, B19, B21, B22, G7: the second run sends again what the first was told."""
    first = codex.ask("hi")
    second = codex.ask("think", "resume", "--last")

    assert first == [message("Hello"), COMPLETED]
    assert second == [{"type": "reasoning", "text": "let me see"}, message("Thought through."), COMPLETED]


@pytest.mark.parametrize("like", [None, "gpt-5.5"], indirect=True)
def test_a_command_is_run_and_its_output_answered(codex: Codex) -> None:
    """C14, C19, C25."""
    assert codex.ask("read the note") == [
        command_run(READ_NOTE, f"{NOTE}\n"),
        message("The note says 42."),
        COMPLETED,
    ]


@pytest.mark.parametrize("like", ["gpt-5.5"], indirect=True)
def test_a_patch_comes_as_plain_text_and_is_applied(codex: Codex) -> None:
    """A6, A10, A11, A12."""
    told = codex.ask("make a file")

    made = codex.folder / "made.txt"
    assert told == [
        {
            "type": "file_change",
            "changes": [{"path": str(made), "kind": "add"}],
            "status": "completed",
        },
        message("Patched."),
        COMPLETED,
    ]
    assert made.read_text(encoding="utf-8") == "made by a patch\n"


@pytest.mark.parametrize("like", ["gpt-6.2-sol"], indirect=True)
def test_code_is_run_by_a_custom_member_of_a_namespace(codex: Codex) -> None:
    """A10, A13: the tools come in an `additional_tools` item."""
    assert codex.ask("run some code") == [
        command_run(READ_NOTE, f"{NOTE}\n"),
        message("The note says 42."),
        COMPLETED,
    ]


@pytest.mark.parametrize("like", [None], indirect=True)
def test_a_tool_of_an_mcp_server_is_called_by_its_namespace(codex: Codex) -> None:
    """A2, A4, A13."""
    # TOML has JSON's strings and lists.
    command, arguments = json.dumps(sys.executable), json.dumps([str(MATH_SERVER)])
    # Required: else Codex does not wait for a server that starts slowly on a busy machine.
    waits = "required=true, startup_timeout_sec=60"
    settings = ["-c", f"mcp_servers.math={{command={command}, args={arguments}, {waits}}}"]

    assert codex.ask("add by mcp", *settings) == [
        {
            "type": "mcp_tool_call",
            "server": "math",
            "tool": "add",
            "arguments": {"a": 1, "b": 2},
            "result": {
                "content": [{"type": "text", "text": "the sum is 3"}],
                "structured_content": {"result": "the sum is 3"},
            },
            "error": None,
            "status": "completed",
        },
        message("1 and 2 make 3."),
        COMPLETED,
    ]


@pytest.mark.parametrize("like", [None], indirect=True)
def test_a_failure_is_told_in_the_words_of_the_server(codex: Codex) -> None:
    """D-05, D3, D4."""
    *_, last = codex.ask("boom")

    # Codex says what it makes of it before the sentence.
    assert last == {
        "type": "turn.failed",
        "error": {"message": "stream disconnected before completion: it broke"},
    }


def test_codex_waits_as_long_as_the_server_shows_that_it_is_alive(
    restless_server: RunningServer, tmp_path: Path
) -> None:
    """D5, D6, D7: it gives up after half of the silence, but it is not silence."""
    codex = Codex(tmp_path / "home", tmp_path / "folder")
    codex.set_up(restless_server, None, idle_ms=SILENCE_MS // 2)

    assert codex.ask("take your time") == [message("At last."), COMPLETED]


def test_codex_speaks_websocket(server: RunningServer, tmp_path: Path) -> None:
    """D-40, E5: it reads its prompt ahead, then sends what is new, and all of its history when resumed."""
    codex = Codex(tmp_path / "home", tmp_path / "folder")
    codex.set_up(server, None, websockets=True)
    first = codex.ask("read the note")
    second = codex.ask("think", "resume", "--last")

    assert first == [command_run(READ_NOTE, f"{NOTE}\n"), message("The note says 42."), COMPLETED]
    assert second[-2:] == [message("Thought through."), COMPLETED]

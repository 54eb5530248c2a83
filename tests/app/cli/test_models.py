"""`turnlog models` as an operator meets it: beside a real server, or without one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.declared import WEIGHT_BYTES, saying
from tests.app.http.test_turns import Json, create
from tests.serving import RunningServer, serving, turnlog
from turnlog.app.cli.models import size


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of models that nobody has asked for. Each test has names of its own."""
    folder = tmp_path_factory.mktemp("models")
    options = saying(folder, qwen="qwen", default="qwen", listed="listed", left="left", right="right")
    with serving(folder / "turnlog.db", *options) as running:
        yield running


def models(server: RunningServer, *arguments: str) -> str:
    """What `turnlog models` says, when all goes well."""
    done = turnlog("models", *arguments, "--db", str(server.database))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rows(table: str) -> dict[str, list[str]]:
    """The rows of a table by their first column; the first is the header."""
    return {words[0]: words for words in (line.split() for line in table.splitlines())}


def test_a_list_as_json_is_one_object_a_line(server: RunningServer) -> None:
    """The objects of `GET /v1/models`, with what only operators see."""
    lines = models(server, "--json").splitlines()

    with server.http as http:
        assert [json.loads(line) for line in lines] == http.get("/v1/models").json()["data"]
    assert [json.loads(line)["id"] for line in lines] == ["qwen", "default", "listed", "left", "right"]


def test_a_model_is_loaded_and_unloaded(server: RunningServer) -> None:
    loaded = rows(models(server, "load", "qwen"))
    assert list(loaded) == ["model", "qwen"]
    assert loaded["qwen"] == ["qwen", "resident", "default", "1.5", "kB", "0", "0/512"]

    unloaded = rows(models(server, "unload", "default"))
    assert unloaded["default"] == ["default", "declared", "qwen", "1.5", "kB", "0", "0/512"]

    assert rows(models(server))["qwen"] == ["qwen", "declared", "default", "1.5", "kB", "0", "0/512"]


def test_a_name_is_swapped(server: RunningServer) -> None:
    swapped: Json = json.loads(models(server, "swap", "left", "right", "--json"))

    with server.http as http:
        assert create(http, "hi", model="left")["output_text"] == "right"
    assert (swapped["id"], swapped["aliases"], swapped["state"]) == ("left", ["right"], "resident")
    assert swapped["weight_bytes"] == WEIGHT_BYTES


def test_options_may_stand_before_the_subcommand(server: RunningServer) -> None:
    done = turnlog("models", "--db", str(server.database), "--json", "load", "listed")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["state"] == "resident"


def test_what_the_server_refuses_is_said_in_one_line(server: RunningServer) -> None:
    done = turnlog("models", "load", "gpt-5", "--db", str(server.database))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("turnlog: The model 'gpt-5' does not exist.")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [(), ("load", "tiny"), ("swap", "tiny", "small", "--json")], ids=["list", "load", "swap"]
)
def test_without_a_server_one_line_says_how_to_start_one(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    database = tmp_path / "turnlog.db"

    done = turnlog("models", *arguments, "--db", str(database))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"turnlog: No server is running for the log '{database}'. Start one with 'turnlog serve', or "
        "choose another log with --db.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_was_killed_is_not_taken_for_a_running_one(tmp_path: Path) -> None:
    """What it left beside its log still names it."""
    database = tmp_path / "turnlog.db"
    with serving(database, *saying(tmp_path, tiny="tiny")) as server:
        server.process.kill()
        server.process.wait()

    done = turnlog("models", "--db", str(database))

    assert database.with_name("turnlog.db.lock").stat().st_size > 0
    assert done.returncode == 2
    assert done.stderr.startswith("turnlog: No server is running for the log")


@pytest.mark.parametrize(
    ("count_bytes", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (12_345_678, "12.3 MB"),
        (2_300_000_000, "2.3 GB"),
    ],
)
def test_a_size_is_told_in_its_largest_unit(count_bytes: int, told: str) -> None:
    assert size(count_bytes) == told

"""The command line and the store: one server a file, a log in memory, and disk space that comes back."""

import json
from pathlib import Path

import pytest

from tests.app.http.test_turns import create
from tests.app.scripts import write_script
from tests.serving import RunningServer, serving, started, turnlog


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The options by which the usual script is served."""
    script = write_script(tmp_path_factory.mktemp("store"))
    return ("--engine", "scripted", "--script", str(script))


def test_a_second_server_on_a_file_is_told_who_has_it(tmp_path: Path, scripted: tuple[str, ...]) -> None:
    database = tmp_path / "turnlog.db"
    with serving(database, *scripted) as server:
        done = turnlog("serve", "--port", "0", "--db", str(database), *scripted)
        side_file = json.loads((tmp_path / "turnlog.db.lock").read_text(encoding="utf-8"))

    assert done.returncode == 2
    assert str(server.process.pid) in done.stderr
    assert server.address in done.stderr
    assert (side_file["pid"], side_file["address"]) == (server.process.pid, server.address)
    assert (tmp_path / "turnlog.db.lock").stat().st_mode & 0o777 == 0o600


def test_a_log_in_memory_says_that_nothing_will_be_kept(scripted: tuple[str, ...], tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("w") as stderr, started(Path(":memory:"), scripted, {}, stderr=stderr) as server:
        with server.http as http:
            first = create(http, "hi")
            second = create(http, "hi", previous_response_id=first["id"])
            assert http.get(f"/v1/responses/{second['id']}").json() == second
        assert server.stop() == 0

    assert "will be lost when this server stops" in errors.read_text(encoding="utf-8")
    assert not Path(":memory:").exists()


def test_disk_space_comes_back_when_the_server_is_stopped(tmp_path: Path, scripted: tuple[str, ...]) -> None:
    database = tmp_path / "turnlog.db"
    with serving(database, *scripted) as server, server.http as http:
        kept = create(http, "hi")["id"]
        running = turnlog("vacuum", "--db", str(database))
        server.stop()

    stopped = turnlog("vacuum", "--db", str(database))

    assert (running.returncode, "server" in running.stderr) == (2, True)
    assert (stopped.returncode, "Reclaimed " in stopped.stdout) == (0, True)
    assert kept in turnlog("ls", "--db", str(database)).stdout


def test_a_ready_server_says_so(tmp_path: Path, scripted: tuple[str, ...]) -> None:
    with serving(tmp_path / "turnlog.db", *scripted) as server, server.http as http:
        ready = http.get("/health/ready")
        assert (ready.status_code, ready.json()) == (200, {"status": "ok", "problems": []})
        move_away(server)
        broken = http.get("/health/ready")

    assert broken.status_code == 503
    assert any("deleted or replaced" in problem for problem in broken.json()["problems"])


def move_away(server: RunningServer) -> None:
    """Take the file from under the server."""
    server.database.rename(server.database.with_suffix(".gone"))

"""The command line and the store: one server a file, a log in memory, and disk space that comes back."""

import json
import os
import shlex
import stat
import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.app.http.test_turns import create
from tests.app.scripts import write_script
from tests.serving import LONG_S, PROGRAM, RunningServer, serving, started, turnlog

_AS_ROOT = ["unshare", "--map-root-user", "--mount"]
"""Runs a program that may mount something for itself."""


def _may_mount() -> bool:
    return which(_AS_ROOT[0]) is not None and not subprocess.run([*_AS_ROOT, "true"], check=False).returncode


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


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "link to the folder", "dots"])
def test_a_second_server_is_refused_under_whatever_name(
    tmp_path: Path, scripted: tuple[str, ...], kind: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    database, other = folder / "turnlog.db", tmp_path / "other.db"
    with serving(database, *scripted) as server, server.http as http:
        match kind:
            case "symbolic link":
                other.symlink_to(database)
            case "hard link":
                other.hardlink_to(database)
            case "link to the folder":
                (tmp_path / "link").symlink_to(folder)
                other = tmp_path / "link" / "turnlog.db"
            case _:
                other = folder / ".." / "folder" / "turnlog.db"
        done = [
            turnlog("serve", "--port", "0", "--db", str(other), *scripted),
            turnlog("vacuum", "--db", str(other)),
            turnlog("reindex", "--db", str(other)),
        ]
        assert create(http, "hi")["status"] == "completed"

    assert [each.returncode for each in done] == [2, 2, 2]
    assert all(f"The event store '{other}' is in use by" in each.stderr for each in done)


@pytest.mark.skipif(not _may_mount(), reason="the system mounts nothing for us")
def test_a_second_server_is_refused_where_the_file_is_mounted(
    tmp_path: Path, scripted: tuple[str, ...]
) -> None:
    """As in a container that was given the file: neither its name nor its folder is the same."""
    database, other = tmp_path / "turnlog.db", tmp_path / "elsewhere" / "other.db"
    other.parent.mkdir()
    other.touch()
    serve = shlex.join([*PROGRAM, "serve", "--port", "0", "--db", str(other), *scripted])
    with serving(database, *scripted):
        done = subprocess.run(
            [*_AS_ROOT, "sh", "-c", f"mount --bind '{database}' '{other}' && exec {serve}"],
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )

    assert done.returncode == 2
    assert f"The event store '{other}' is in use by another process" in done.stderr


def test_what_commands_make_is_for_their_owner_only(tmp_path: Path, scripted: tuple[str, ...]) -> None:
    """T2-13: Whichever command makes it, and however careless the shell is."""
    database, folder = tmp_path / "new" / "turnlog.db", tmp_path / "new"
    copy, exported = tmp_path / "copies" / "copy.db", tmp_path / "log.jsonl"
    before = os.umask(0)
    try:
        assert turnlog("keys", "add", "ada", "--db", str(tmp_path / "keys" / "x.db")).returncode == 0
        with serving(database, *scripted) as server, server.http as http:
            create(http, "hi")
            served = modes(folder)
            assert turnlog("export", "--out", str(exported), "--db", str(database)).returncode == 0
            server.stop()
        assert turnlog("import", str(exported), "--db", str(copy)).returncode == 0
    finally:
        os.umask(before)

    assert {"turnlog.db", "turnlog.db-wal", "turnlog.db-shm", "turnlog.db.lock"} <= served.keys()
    made = {**served, **modes(copy.parent), **modes(tmp_path / "keys"), "log.jsonl": mode(exported)}
    assert set(made.values()) == {0o600}
    assert {mode(each) for each in (folder, copy.parent, tmp_path / "keys")} == {0o700}


def mode(path: Path) -> int:
    """Who may do what with it."""
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    """The same of all that is in a folder, by name."""
    return {each.name: mode(each) for each in folder.iterdir()}


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

"""The command line as its user meets it: a process, its output and its exit code."""

import json
import re
import socket
from pathlib import Path

import pytest

from tests.app.http.test_turns import create, stream
from tests.app.scripts import write_script
from tests.serving import serving, turnlog
from tests.waiting import received


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The usual script."""
    return write_script(tmp_path_factory.mktemp("cli"))


def test_a_server_says_where_it_answers_ends_well_and_leaves_a_readable_log(
    tmp_path: Path, script: Path
) -> None:
    database = tmp_path / "new" / "turnlog.db"
    with serving(database, "--engine", "scripted", "--script", str(script)) as server, server.http as http:
        first = create(http, "hi")["id"]
        second = create(http, "hi", previous_response_id=first)["id"]
        failed = http.post("/v1/responses", json={"model": "scripted", "input": "boom"})
        assert server.stop() == 0

    story = turnlog("log", second, "--db", str(database))
    lines = turnlog("log", second, "--db", str(database), "--json").stdout.splitlines()
    listed = turnlog("ls", "--db", str(database))
    rows = [json.loads(line) for line in turnlog("ls", "--db", str(database), "--json").stdout.splitlines()]
    by_status = {
        status: turnlog("ls", "--db", str(database), "--status", status, "--json", "--limit", "1").stdout
        for status in ("failed", "error", "completed", "in_progress")
    }

    for state in ("created", "in_progress", "committed", "persisted"):
        assert state in story.stdout
    assert json.loads(lines[0])["event"] == "response.created.v1"
    assert json.loads(lines[-1])["event"] == "response.persisted.v1"
    assert [row["id"] for row in rows] == [failed.headers["x-response-id"], second, first]
    assert all(row["id"] in listed.stdout for row in rows)
    found = {status: text and json.loads(text)["id"] for status, text in by_status.items()}
    assert found == {
        "failed": rows[0]["id"],
        "error": rows[0]["id"],
        "completed": second,
        "in_progress": "",
    }


def test_after_a_restart_everything_is_still_there_byte_for_byte(tmp_path: Path, script: Path) -> None:
    """R-028, G-007, E9: nothing is left but the store, and the chain goes on from it."""
    database = tmp_path / "turnlog.db"
    arguments = ("--engine", "scripted", "--script", str(script))
    with serving(database, *arguments) as server, server.http as http:
        live = stream(http, "think")
        response_id = json.loads(live.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        answered = http.get(f"/v1/responses/{response_id}").json()
        server.stop()

    with serving(database, *arguments) as server, server.http as http:
        assert http.get(f"/v1/responses/{response_id}?stream=true").content == live
        assert http.get(f"/v1/responses/{response_id}").json() == answered
        again = create(http, "hi", previous_response_id=response_id)

    assert again["previous_response_id"] == response_id


def test_a_running_stream_gets_its_terminal_when_the_server_is_stopped(tmp_path: Path, script: Path) -> None:
    """R-393: when its time is over, and the process ends well."""
    arguments = ("--engine", "scripted", "--script", str(script))
    grace = {"TURNLOG_SHUTDOWN_GRACE_S": "0.5"}
    with serving(tmp_path / "turnlog.db", *arguments, **grace) as server, server.http as http:
        body = {"model": "scripted", "input": "hang", "stream": True}
        with http.stream("POST", "/v1/responses", json=body) as answer:
            chunks = answer.iter_bytes()
            told = received(lambda: next(chunks, b""), b"output_text.delta")
            code = server.stop()
            told += b"".join(chunks)

    assert code == 0
    assert told.endswith(b"data: [DONE]\n\n")
    assert b'"code":"shutting_down"' in told


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["serve", "--port", "many"], {}, "--port is 'many'"),
        (["serve"], {"TURNLOG_PORT": "many"}, "TURNLOG_PORT is 'many'"),
        (["serve", "--engine", "scripted"], {}, "--script FILE"),
        (["serve", "--engine", "scripted", "--script", "missing.json"], {}, "missing.json"),
        (["serve", "--port", "0", "--model", "tiny"], {}, "expected NAME=PATH"),
        (["serve", "--port", "0", "--model", "tiny=missing"], {}, "No model folder at missing"),
        (["log", "resp_1", "--db", "missing.db"], {}, "No event store at 'missing.db'"),
        (["ls", "--status", "asleep"], {}, "'asleep' is not one of"),
        (["log"], {}, "Missing argument 'RESPONSE_ID'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_with_exit_code_2(
    arguments: list[str], environ: dict[str, str], said: str
) -> None:
    done = turnlog(*arguments, **environ)

    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert said in done.stderr


def test_the_environment_of_a_kubernetes_service_stops_no_command(tmp_path: Path, script: Path) -> None:
    """T2-01: what has no effect is named once, on stderr."""
    kubernetes = {
        "TURNLOG_PORT": "tcp://10.0.0.7:8000",
        "TURNLOG_SERVICE_HOST": "10.0.0.7",
        "TURNLOG_API_KEY": "s3cret",
    }
    database = tmp_path / "turnlog.db"
    with serving(database, "--engine", "scripted", "--script", str(script), **kubernetes):
        listed = turnlog("ls", "--db", str(database), **kubernetes)

    assert listed.returncode == 0
    named = re.findall(r"^turnlog: .*?(TURNLOG_\w+)", listed.stderr, re.MULTILINE)
    assert sorted(named) == sorted(kubernetes)
    assert "s3cret" not in listed.stderr


def test_a_port_in_use_is_named(tmp_path: Path, script: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = turnlog(
            "serve",
            "--port",
            str(port),
            "--engine",
            "scripted",
            "--script",
            str(script),
            "--db",
            str(tmp_path / "x.db"),
        )

    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_database_that_cannot_be_written_is_named(tmp_path: Path, script: Path) -> None:
    (tmp_path / "file").touch()
    database = tmp_path / "file" / "turnlog.db"

    done = turnlog(
        "serve", "--port", "0", "--engine", "scripted", "--script", str(script), "--db", str(database)
    )

    assert done.returncode == 2
    assert str(database) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_broken_script_is_refused_with_its_place(tmp_path: Path) -> None:
    broken = write_script(tmp_path, {"turns": [{"steps": [{"text": "a"}, {"txet": "b"}]}]})

    done = turnlog("serve", "--port", "0", "--engine", "scripted", "--script", str(broken))

    assert done.returncode == 2
    assert "turns[0].steps[1]" in done.stderr


def test_a_response_that_is_not_in_the_log_is_named(tmp_path: Path, script: Path) -> None:
    database = tmp_path / "turnlog.db"
    with serving(database, "--engine", "scripted", "--script", str(script)):
        done = turnlog("log", "resp_unknown", "--db", str(database))

    assert (done.returncode, "resp_unknown" in done.stderr) == (2, True)

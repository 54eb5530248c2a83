"""How commands find the running server of a log and talk to it."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.app.cli.server import NoServerError, Server, ServerRefusedError

MODELS = {"object": "list", "data": []}


class Answering(HTTPServer):
    """Answers every request alike; `asked` are the requests, each with its `Authorization`."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status = status
        self.body = body
        self.asked: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Answering

    def do_GET(self) -> None:
        self.server.asked.append((self.requestline, self.headers["authorization"]))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def answering(status: int, body: bytes) -> Iterator[Answering]:
    """Something that answers on this machine."""
    with Answering(status, body) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def log_kept_at(address: str | None, folder: Path) -> Iterator[tuple[Path, str]]:
    """A log that this process keeps, and its operator's token; None while the server does not listen."""
    database = folder / "turnlog.db"
    with closing(StoreLock(database)) as lock:
        if address:
            lock.describe(address)
        yield database, lock.token


def test_the_operators_token_goes_to_the_server_and_to_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(200, json.dumps(MODELS).encode()) as server, answering(500, b"") as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.address)
        monkeypatch.delenv("no_proxy", raising=False)
        with log_kept_at(server.address, tmp_path) as (database, token), closing(Server(database)) as found:
            got = found.get("/v1/models")
            posted = found.post("/v1/models/load", {"name": "tiny"})

    assert (got, posted) == (MODELS, MODELS)
    assert server.asked == [
        ("GET /v1/models HTTP/1.1", f"Bearer {token}"),
        ("POST /v1/models/load HTTP/1.1", f"Bearer {token}"),
    ]
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("told", "reached"),
    [
        ("http://0.0.0.0:81", "http://127.0.0.1:81"),
        ("http://[::]:81", "http://[::1]:81"),
        ("http://192.0.2.1:81", "http://192.0.2.1:81"),
    ],
)
def test_a_server_on_every_address_is_reached_on_this_machine(
    tmp_path: Path, told: str, reached: str
) -> None:
    with log_kept_at(told, tmp_path) as (database, _), closing(Server(database)) as server:
        assert server.address == reached


def test_without_a_server_there_is_none(tmp_path: Path) -> None:
    """Neither beside a log that nobody keeps, nor beside one whose server was stopped."""
    with log_kept_at("http://127.0.0.1:81", tmp_path) as (database, _):
        pass

    for path in (database, tmp_path / "new.db"):
        with pytest.raises(
            NoServerError, match=f"^No server is running for the log '{path}'.*'turnlog serve'"
        ):
            Server(path)


def test_a_server_that_was_killed_is_not_taken_for_a_running_one(tmp_path: Path) -> None:
    """It leaves its name behind, and another process may listen at its address by now."""
    killed = subprocess.Popen(["true"])
    killed.wait()
    left = {"pid": killed.pid, "address": "http://127.0.0.1:81", "token": "secret"}
    (tmp_path / "turnlog.db.lock").write_text(json.dumps(left), encoding="utf-8")

    with pytest.raises(NoServerError, match=r"^No server is running for the log"):
        Server(tmp_path / "turnlog.db")


def test_a_server_that_does_not_listen_yet_is_named_by_its_process(tmp_path: Path) -> None:
    with (
        log_kept_at(None, tmp_path) as (database, _),
        pytest.raises(NoServerError, match=rf"^The server \(process {os.getpid()}\) is still starting"),
    ):
        Server(database)


def test_a_server_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"

    with (
        log_kept_at(address, tmp_path) as (database, _),
        closing(Server(database)) as server,
        pytest.raises(NoServerError, match=f"^No server answers at {address} .* for the log '{database}'"),
    ):
        server.get("/v1/models")


REFUSAL = {"error": {"message": "The model 'x' does not exist.", "type": "not_found_error"}}


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (404, json.dumps(REFUSAL), r"^The model 'x' does not exist\.$"),
        (502, "<html>Bad Gateway</html>", "is not turnlog: 502 for GET /v1/models$"),
        (200, "[]", "is not turnlog: 200 for GET /v1/models$"),
        (400, '{"error": "no"}', "is not turnlog: 400 for GET /v1/models$"),
    ],
)
def test_what_is_no_answer_or_a_refusal_is_an_error(
    tmp_path: Path, status: int, body: str, sentence: str
) -> None:
    with (
        answering(status, body.encode()) as other,
        log_kept_at(other.address, tmp_path) as (database, _),
        closing(Server(database)) as server,
        pytest.raises(ServerRefusedError, match=sentence),
    ):
        server.get("/v1/models")


def test_what_is_streamed_comes_line_by_line_or_is_refused_as_a_whole(tmp_path: Path) -> None:
    with (
        answering(200, b"one\ntwo\n") as streaming,
        log_kept_at(streaming.address, tmp_path) as (database, _),
        closing(Server(database)) as server,
    ):
        assert list(server.lines("/v1/responses/resp_1/replay", {})) == ["one", "two"]

    with (
        answering(404, json.dumps(REFUSAL).encode()) as refusing,
        log_kept_at(refusing.address, tmp_path) as (database, _),
        closing(Server(database)) as server,
        pytest.raises(ServerRefusedError, match="does not exist"),
    ):
        list(server.lines("/v1/responses/resp_1/replay", {}))

"""What a connection may cost: slow, endless, stalled and too many ones are ended by a rule and an answer."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.app.exposed import samples
from tests.app.http.test_turns import create
from tests.app.scripts import HELLO, STOP, entry, write_script
from tests.faults.witness import scripted
from tests.security.sockets import asking, error_of, head, post, rest
from tests.serving import RunningServer, connected, started
from tests.waiting import received, until

MOST_CONNECTIONS = 20
SURPLUS = 64
HEAD_BYTES = 4096
BIG = "x" * 8_000_000
SCRIPT = {"turns": [entry("big", {"text": BIG}, STOP), entry("hang", {"hang": True}), HELLO]}
ENVIRON = {
    "TURNLOG_MAX_CONNECTIONS": str(MOST_CONNECTIONS),
    "TURNLOG_MAX_HEAD_BYTES": str(HEAD_BYTES),
    "TURNLOG_HEAD_TIMEOUT_S": "1",
    "TURNLOG_BODY_TIMEOUT_S": "1",
    "MLX_SSE_DRAIN_TIMEOUT_MS": "300",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with little silence."""
    with scripted(tmp_path_factory.mktemp("connections"), SCRIPT, **ENVIRON) as running:
        yield running


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with silence and few connections."""
    with scripted(tmp_path, SCRIPT, TURNLOG_MAX_CONNECTIONS=str(MOST_CONNECTIONS)) as running:
        yield running


def alive(server: RunningServer) -> bool:
    """Whether somebody who behaves gets an answer."""
    with server.http as client:
        return bool(create(client, "hi")["status"] == "completed")


# ── slow senders ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "part",
    [b"POST /v1/resp", head("Content-Type: application/json", "Content-Length: 10"), post(b"{}")[:-1]],
    ids=["half a head", "no body", "half a body"],
)
def test_a_request_that_does_not_come_to_its_end_is_ended(server: RunningServer, part: bytes) -> None:
    """Slowloris."""
    with connected(server) as client:
        client.sendall(part)
        told = rest(client)

    assert error_of(told) == (408, "request_timeout")
    assert alive(server)


def test_a_connection_on_which_nothing_is_said_is_closed(server: RunningServer) -> None:
    with connected(server) as client:
        assert rest(client) == b""


def test_one_byte_after_an_answer_does_not_keep_a_connection_open(server: RunningServer) -> None:
    """The byte ends uvicorn's own wait for the next request, and begins no request."""
    with connected(server) as client:
        client.sendall(asking("hi"))
        received(lambda: client.recv(1 << 16), b'"usage"')
        client.sendall(b"\r\n")
        told = rest(client)

    assert error_of(told) == (408, "request_timeout")


def test_a_body_sent_behind_the_answer_is_waited_for_no_longer_than_any_other(server: RunningServer) -> None:
    with connected(server) as client:
        client.sendall(head("Content-Length: 1000", route="POST /nowhere") + b"x")
        told = rest(client)

    assert b"route_not_found" in told


# ── endless heads ─────────────────────────────────────────────────────────────────────────────────

CHUNKED = head("Content-Type: application/json", "Transfer-Encoding: chunked")
ENDLESS = b"x" * 3 * HEAD_BYTES


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + ENDLESS,
        head()[:-2] + b"A: " + ENDLESS,
        head(*[f"H{number}: {'x' * 100}" for number in range(100)]),
        CHUNKED + b"1;" + ENDLESS,
        CHUNKED + b"1\r\n{\r\n0\r\nA: " + ENDLESS,
    ],
    ids=["url", "one header", "many headers", "chunk extension", "trailer"],
)
def test_a_head_without_end_is_refused_at_a_bound(server: RunningServer, sent: bytes) -> None:
    """httptools has no bound of its own: it would keep what it is sent."""
    with connected(server) as client:
        client.sendall(sent)
        told = rest(client)

    assert error_of(told) == (431, "headers_too_large")
    assert alive(server)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        head("Content-Length: 5", "Transfer-Encoding: chunked"),
        head("Content-Length: 5", "Content-Length: 6"),
        head("Content-Length: -1"),
    ],
    ids=["TLS", "a path that is no text", "two lengths", "two other lengths", "a negative length"],
)
def test_what_is_no_http_is_refused_in_the_envelope(server: RunningServer, sent: bytes) -> None:
    """D-06; two lengths are how requests are smuggled past a proxy."""
    with connected(server) as client:
        client.sendall(sent)
        told = rest(client)

    assert error_of(told) == (400, "invalid_http")


def test_garbage_behind_a_running_stream_cuts_it_off_and_never_gets_into_it(patient: RunningServer) -> None:
    with connected(patient) as client:
        client.sendall(asking("hang", stream=True))
        told = received(lambda: client.recv(1 << 16), b"response.in_progress")
        client.sendall(b"garbage\r\n\r\n")
        told += rest(client)

    assert b"invalid_http" not in told
    assert b"HTTP/1.1 400" not in told


def test_requests_do_not_pile_up_behind_one_that_runs(patient: RunningServer) -> None:
    with connected(patient) as client:
        client.sendall(asking("hang") + head(route="GET /health") * 20)
        told = rest(client)

    assert told == b""
    assert alive(patient)


# ── stalled readers ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lines", [(), ("Connection: close",)], ids=["kept open", "to be closed"])
def test_a_reader_that_does_not_take_its_json_is_cut_off(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """R-310 for bodies as for streams: the answer is written at once, and would wait in memory for ever."""
    body = json.dumps({"model": "scripted", "input": "big"}).encode()
    with (tmp_path / "log").open("w+") as log:
        arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, SCRIPT)))
        with started(tmp_path / "turnlog.db", arguments, ENVIRON, stderr=log) as server:
            with connected(server) as client:
                client.sendall(post(body, *lines))
                until(lambda: "whose client stopped reading" in (tmp_path / "log").read_text())
                told = rest(client)
            behaves = alive(server)

    assert len(told) < len(BIG)
    assert behaves


# ── too many ──────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_too_many_is_told_so_and_the_others_go_on(patient: RunningServer) -> None:
    with ExitStack() as stack:
        held = busy(patient, stack, MOST_CONNECTIONS)
        surplus = stack.enter_context(connected(patient))
        surplus.sendall(head(route="GET /health"))
        told = rest(surplus)
        for client in held:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)
    # Freed one after the other.
    until(lambda: _answers(patient))

    assert error_of(told) == (503, "too_many_connections")
    assert b"retry-after: 1\r\n" in told.lower()


def test_many_connections_too_many_are_dropped(patient: RunningServer) -> None:
    with ExitStack() as stack:
        busy(patient, stack, MOST_CONNECTIONS)
        silent = [stack.enter_context(connected(patient)) for _ in range(2 * SURPLUS)]
        dropped = [client for client in silent[-SURPLUS + 1 :] if rest(client) == b""]
        assert len(dropped) == SURPLUS - 1


@pytest.mark.parametrize(
    "sent", [b"", b"GET /hea", head(route="GET /health")], ids=["nothing", "half", "one"]
)
def test_idle_connections_do_not_keep_others_out(patient: RunningServer, sent: bytes) -> None:
    """Whoever opens connections and does nothing loses the oldest of them; whoever is served loses none."""
    with ExitStack() as stack:
        served = busy(patient, stack, 1)[0]
        for _ in range(3 * MOST_CONNECTIONS):
            # One that is dropped is one less to be in the way.
            with suppress(ConnectionError):
                stack.enter_context(connected(patient)).sendall(sent)
        until(lambda: _answers(patient))
        with patient.http as http:
            now = samples(http.get("/metrics").text, "budget")
        served.setblocking(False)
        with pytest.raises(BlockingIOError):
            served.recv(1)

    assert now["budget_limit{budget=connections}"] == MOST_CONNECTIONS
    assert now["budget_limit{budget=unauthenticated_connections}"] == MOST_CONNECTIONS // 4
    assert now["budget_in_use{budget=connections}"] <= MOST_CONNECTIONS
    assert now["budget_reached_total{budget=unauthenticated_connections}"] > 0


def busy(server: RunningServer, stack: ExitStack, count: int) -> list[socket.socket]:
    """Connections that are being served: their turn waits or hangs, or they are told to be too many."""
    clients = [stack.enter_context(connected(server)) for _ in range(count)]
    for client in clients:
        client.sendall(asking("hang", store=False))
    return clients


def _answers(server: RunningServer) -> bool:
    try:
        return httpx.get(f"{server.address}/health").status_code == 200
    except httpx.TransportError:
        return False

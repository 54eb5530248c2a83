"""Clients that leave, stall, crowd in or say nothing: their turns end by a rule, the others go on."""

import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier

import httpx
import pytest

from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create
from tests.app.scripts import HELLO, STOP, entry
from tests.faults.witness import (
    Json,
    acknowledged,
    continued,
    listening,
    names,
    scripted,
    stories,
)
from tests.serving import RunningServer, connected
from tests.waiting import SOON_S, received, until
from turnlog.domain.events import ResponseCreated

BIG = "x" * 100_000
PIECES = 100
SCRIPT: Json = {
    "concurrency": 1,
    "turns": [
        entry("hang", {"text": "Hel"}, {"hang": True}),
        entry("flood", *[{"text": BIG}] * PIECES, STOP),
        HELLO,
    ],
}
MANY = 50
"""Connections at once."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that runs one turn at a time and cuts off readers that take nothing for 100 ms."""
    environ = {
        "MLX_SSE_DRAIN_TIMEOUT_MS": "100",
        "TURNLOG_SHUTDOWN_GRACE_S": "1",
        "TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL": "unbounded",
        "TURNLOG_MAX_QUEUED_TURNS_PER_OWNER": str(MANY),
    }
    with scripted(tmp_path, SCRIPT, **environ) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with server.http as client:
        yield client


# ── clients that leave ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("streaming", [False, True], ids=["json", "stream"])
def test_a_client_that_leaves_while_it_is_queued_frees_its_place_and_the_engine_never_hears_of_it(
    server: RunningServer, http: httpx.Client, *, streaming: bool
) -> None:
    """R-366, D-26, G-154: client gone before dispatch."""
    with listening(http, "hang") as first:
        first.until("output_text.delta")
        with _asking(server, "hi", "queued", stream=streaming):
            left = until(lambda: _newest(server, "queued"))
        stored = acknowledged(http, left, "failed")
        still_running = http.get(f"/v1/responses/{first.response_id}").json()["status"]
    after = create(http, "hi")

    assert (names(stored), stored[-1]["data"]["reason"]) == (["created", "failed"], "client_abort")
    assert (still_running, after["status"]) == ("in_progress", "completed")


def test_a_client_that_leaves_in_the_middle_of_a_stream_ends_its_turn_and_frees_the_lane(
    http: httpx.Client,
) -> None:
    """R-370, G-134, D-25."""
    with listening(http, "hang") as stream:
        stream.until("output_text.delta")
    after = create(http, "hi")

    stored = acknowledged(http, stream.response_id, "failed")
    told = http.get(f"/v1/responses/{stream.response_id}?stream=true").content
    assert stored[-1]["data"]["reason"] == "client_abort"
    assert told.startswith(stream.told)
    assert read_stream(told)[-1]["response"]["output"][0]["status"] == "incomplete"
    assert after["status"] == "completed"


@pytest.mark.parametrize("streaming", [False, True], ids=["json", "stream"])
def test_a_client_that_leaves_after_the_commit_changes_nothing(
    server: RunningServer, http: httpx.Client, *, streaming: bool
) -> None:
    """D-25 (in place of R-372, G-135): the answer is stored and can be continued, read or not."""
    with _asking(server, "hi", "leaver", stream=streaming):
        left = until(lambda: _newest(server, "leaver"))
        acknowledged(http, left, "committed")
    stored = acknowledged(http, left, "persisted")

    assert names(stored)[-2:] == ["committed", "persisted"]
    assert http.get(f"/v1/responses/{left}").json()["output_text"] == "Hello"
    assert continued(http, left).status_code == 200


@contextmanager
def _asking(server: RunningServer, text: str, who: str, *, stream: bool) -> Iterator[socket.socket]:
    """A client that has asked for a turn, reads nothing and hangs up at the end of the block."""
    with connected(server) as client:
        client.sendall(_request(text, who, stream=stream))
        yield client


def _request(text: str, who: str, *, stream: bool) -> bytes:
    body = json.dumps({"model": "scripted", "input": text, "metadata": {"who": who}, "stream": stream})
    head = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def _newest(server: RunningServer, who: str) -> str:
    """The stored response whose metadata says who asked; "" if there is none yet."""
    for response_id, story in stories(server.database).items():
        created = story[0].event
        assert isinstance(created, ResponseCreated)
        if created.metadata.get("who") == who:
            return response_id
    return ""


# ── clients that stall ────────────────────────────────────────────────────────────────────────────


def test_a_reader_that_takes_nothing_is_cut_off_and_neither_its_turn_nor_the_next_one_waits(
    server: RunningServer, http: httpx.Client
) -> None:
    """R-307, R-309, R-310, D-25, G-139: there is one place for turns; the slow reader does not hold it."""
    with _asking(server, "flood", "stalled", stream=True) as stalled:
        told = received(lambda: stalled.recv(1024), b'"object"')
        response_id = re.findall(r'"id":"(resp_[0-9a-f]{32})"', told.decode())[0]
        after = create(http, "hi")
        stored = acknowledged(http, response_id, "persisted")
        rest = _rest(stalled)

    assert after["status"] == "completed"
    assert names(stored)[-2:] == ["committed", "persisted"]
    assert not rest.endswith(b"0\r\n\r\n")
    assert len(http.get(f"/v1/responses/{response_id}").json()["output_text"]) == PIECES * len(BIG)


def _rest(stalled: socket.socket) -> bytes:
    """The last bytes that come over a connection, until it is closed or reset."""
    rest = b""
    try:
        while chunk := stalled.recv(1 << 20):
            rest = (rest + chunk)[-100:]
    except ConnectionError:
        return rest
    return rest


@pytest.mark.parametrize(
    "part",
    [b"", b"POST /v1/resp", _request("hi", "slow", stream=False)[:-10]],
    ids=["nothing", "half a head", "half a body"],
)
def test_requests_that_never_come_to_an_end_hold_up_nobody_and_not_the_stop_either(
    server: RunningServer, http: httpx.Client, part: bytes
) -> None:
    """Such a connection costs a socket and no turn; it ends at `TURNLOG_HEAD_TIMEOUT_S` or its like.

    That it does is tested in `tests/security`.
    """
    with ExitStack() as connections:
        silent = [connections.enter_context(connected(server)) for _ in range(MANY)]
        for client in silent:
            client.sendall(part)
        answered = [create(http, "hi")["status"] for _ in range(3)]
        ready = http.get("/health/ready").status_code
        kept = len(stories(server.database))
        open_still = [client for client in silent if _is_open(client)]
        code = server.stop()

    assert (answered, ready) == (["completed"] * 3, 200)
    assert kept <= 3  # the turns that were asked for, and none of the half requests
    assert len(open_still) == MANY
    assert code == 0


def _is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def test_what_is_no_http_is_refused_and_costs_no_turn(server: RunningServer, http: httpx.Client) -> None:
    with connected(server) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
        told = _rest(client)

    assert b'"code":"invalid_http"' in told
    assert create(http, "hi")["status"] == "completed"


# ── clients that crowd in ─────────────────────────────────────────────────────────────────────────


def test_fifty_clients_at_once_all_get_their_own_answer(server: RunningServer, http: httpx.Client) -> None:
    """One turn runs at a time; the others wait in order, each with an id of its own."""
    barrier = Barrier(MANY, timeout=SOON_S)

    def ask(number: int) -> Json:
        with server.http as client:
            barrier.wait()
            return create(client, "hi", metadata={"who": str(number)})

    with ThreadPoolExecutor(MANY) as clients:
        bodies = list(clients.map(ask, range(MANY)))

    assert [body["metadata"]["who"] for body in bodies] == [str(number) for number in range(MANY)]
    assert len({body["id"] for body in bodies}) == MANY
    assert {body["output_text"] for body in bodies} == {"Hello"}
    for body in bodies:
        assert names(acknowledged(http, body["id"], "persisted"))[-1] == "persisted"

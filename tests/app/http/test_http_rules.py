"""What RFC 9110 and RFC 9112 ask of a server that answers and streams, on bare sockets (T2-19)."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx
import pytest

from tests.app.http.test_turns import create
from tests.security.sockets import asking, head, post, rest
from tests.serving import RunningServer, connected

CLOSE = "Connection: close"
BODY = json.dumps({"model": "scripted", "input": "hi"}).encode()


class Answer(NamedTuple):
    """An answer as it came; the values of a header that comes twice are joined."""

    status: int
    headers: dict[str, str]
    body: bytes


def read(told: bytes) -> Answer:
    """The one answer in these bytes."""
    top, _, body = told.partition(b"\r\n\r\n")
    first, *lines = top.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Answer(int(first.split()[1]), headers, body)


def exchange(server: RunningServer, sent: bytes) -> Answer:
    """What comes until the server closes the connection."""
    with connected(server) as client:
        client.sendall(sent)
        return read(rest(client))


def until(client: socket.socket, end: bytes) -> bytes:
    """What comes up to some bytes."""
    told = b""
    while not told.endswith(end):
        piece = client.recv(1)
        assert piece, f"the connection was closed after {told!r}"
        told += piece
    return told


# ── HEAD, OPTIONS, methods ────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def response_id(server: RunningServer) -> str:
    """A response that is over."""
    with server.http as http:
        answered: str = create(http, "hi")["id"]
    return answered


@pytest.mark.parametrize(
    "path",
    [
        "/health",
        "/v1/health",
        "/health/ready",
        "/",
        "/v1/models",
        "/v1/models/scripted",
        "/v1/models/none",
        "/v1/responses/ID",
        "/v1/responses/ID/events",
        "/v1/responses/none",
        "/openapi.json",
        "/nothing",
    ],
)
def test_head_is_get_without_a_body(server: RunningServer, response_id: str, path: str) -> None:
    """T2-19; RFC 9110, 9.3.2: the same status and fields."""
    path = path.replace("ID", response_id)

    got, headed = (exchange(server, head(CLOSE, route=f"{method} {path}")) for method in ("GET", "HEAD"))

    assert headed.body == b""
    assert headed.status == got.status
    differing = {"date", "x-request-id", "openai-processing-ms"}
    assert {name: value for name, value in headed.headers.items() if name not in differing} == {
        name: value for name, value in got.headers.items() if name not in differing
    }


@pytest.mark.parametrize("path", ["/v1/responses/ID?stream=true", "/v1/audit/export"])
def test_head_of_a_stream_ends_after_its_fields(server: RunningServer, response_id: str, path: str) -> None:
    """T2-19; RFC 9110, 9.3.2: no chunk follows, and the next request on the connection is answered."""
    sent = head(route=f"HEAD {path.replace('ID', response_id)}") + head(CLOSE, route="GET /health")

    with connected(server) as client:
        client.sendall(sent)
        first = read(until(client, b"\r\n\r\n"))
        second = read(rest(client))

    assert first.status == 200
    assert first.headers["content-type"].startswith(("text/event-stream", "application/jsonl"))
    assert (second.status, second.body) == (200, b'{"status":"ok"}')


def test_head_of_a_running_turns_stream_does_not_wait_for_its_end(server: RunningServer) -> None:
    """T2-19: and the turn goes on."""
    with server.http as http, http.stream("POST", "/v1/responses", json=_asking("hang")) as running:
        lines = running.iter_lines()
        created = next(line for line in lines if line.startswith("data: "))
        running_id = json.loads(created.removeprefix("data: "))["response"]["id"]

        headed = exchange(server, head(CLOSE, route=f"HEAD /v1/responses/{running_id}?stream=true"))
        still = http.get(f"/v1/responses/{running_id}").json()["status"]

    assert (headed.status, headed.body, still) == (200, b"", "in_progress")


def _asking(text: str) -> dict[str, object]:
    return {"model": "scripted", "input": text, "stream": True}


@pytest.mark.parametrize(
    ("route", "allowed"),
    [
        ("DELETE /health", "GET, HEAD, OPTIONS"),
        ("POST /v1/models", "GET, HEAD, OPTIONS"),
        ("PUT /v1/models/load", "GET, HEAD, OPTIONS, POST"),
        ("TRACE /", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_method_that_is_not_allowed_is_told_which_are(
    server: RunningServer, route: str, allowed: str
) -> None:
    """T2-19; RFC 9110, 15.5.6: `Allow` in every 405."""
    answer = exchange(server, head(CLOSE, route=route))

    assert answer.status == 405
    assert ", ".join(sorted(answer.headers["allow"].split(", "))) == allowed


def test_options_names_the_methods_and_has_no_body_and_no_length(server: RunningServer) -> None:
    """RFC 9110, 8.6 and 9.3.7: 204 has no Content-Length, and no Transfer-Encoding (RFC 9112, 6.1)."""
    answer = exchange(server, head(CLOSE, route="OPTIONS /health"))

    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    assert not answer.headers.keys() & {"content-length", "transfer-encoding"}


# ── fields that answers must have ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sent",
    [
        head(CLOSE, route="GET /health"),
        head(CLOSE, route="GET /nothing"),
        post(BODY, CLOSE),
        asking("hi", stream=True).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1),
        b"no http\r\n\r\n",
        head("X: " + "x" * 100_000),
    ],
    ids=["good", "refused", "a turn", "a stream", "no HTTP", "too much"],
)
def test_every_answer_has_a_date_and_says_where_it_ends(server: RunningServer, sent: bytes) -> None:
    """RFC 9110, 6.6.1; RFC 9112, 6.3."""
    answer = exchange(server, sent)

    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.headers["date"])
    assert ("content-length" in answer.headers) != ("transfer-encoding" in answer.headers)
    assert answer.headers["connection"] == "close"
    if "content-length" in answer.headers:
        assert int(answer.headers["content-length"]) == len(answer.body)
    else:
        assert answer.body.endswith(b"\r\n0\r\n\r\n")


def test_a_kept_connection_is_not_announced_as_closed(server: RunningServer) -> None:
    """RFC 9112, 9.3: HTTP/1.1 stays open, and answers come in the order of the requests."""
    with connected(server) as client:
        client.sendall(head(route="GET /health") + head(route="GET /") + head(CLOSE, route="GET /nothing"))
        told = rest(client)

    answers = [read(b"HTTP/1.1 " + each) for each in told.split(b"HTTP/1.1 ")[1:]]
    assert [answer.status for answer in answers] == [200, 200, 404]
    assert [answer.headers.get("connection") for answer in answers] == [None, None, "close"]


def test_nothing_is_answered_behind_a_request_to_close(server: RunningServer) -> None:
    """RFC 9112, 9.6."""
    answer = exchange(server, head(CLOSE, route="GET /health") + head(route="GET /health"))

    assert answer.body == b'{"status":"ok"}'


def test_426_says_what_is_spoken_instead(server: RunningServer) -> None:
    """RFC 9110, 15.5.22 and 7.8: with `Upgrade`, which `Connection` names."""
    answer = exchange(
        server, head("Upgrade: websocket", "Connection: Upgrade, close", route="GET /v1/responses")
    )

    assert (answer.status, answer.headers["upgrade"]) == (426, "websocket")
    assert "upgrade" in answer.headers["connection"].lower()


def test_415_says_which_encodings_are_read(server: RunningServer) -> None:
    """RFC 9110, 15.5.16."""
    answer = exchange(server, post(b"x", "Content-Encoding: br", CLOSE))

    assert (answer.status, answer.headers["accept-encoding"]) == (415, "gzip, deflate, zstd")


# ── Host and target ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "hosts",
    [[], ["Host: localhost", "Host: localhost"], ["Host: a b"], ["Host: localhost/x"], ["Host:"]],
    ids=["none", "two", "a blank", "a path", "empty"],
)
@pytest.mark.parametrize("target", ["/health", "http://localhost/health"])
def test_a_request_without_one_good_host_is_400(server: RunningServer, target: str, hosts: list[str]) -> None:
    """RFC 9112, 3.2; in absolute form, too, unless the one host is wrong: the target's stands for it."""
    sent = "\r\n".join([f"GET {target} HTTP/1.1", *hosts, CLOSE, "", ""]).encode()

    answer = exchange(server, sent)

    stands_for = target.startswith("http") and len(hosts) == 1
    assert answer.status == (200 if stands_for else 400)


def test_http_1_0_needs_no_host(server: RunningServer) -> None:
    """RFC 9112, 3.2: and load balancers send none."""
    assert exchange(server, b"GET /health HTTP/1.0\r\n\r\n").status == 200


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/health", "localhost", 200),
        ("http://localhost/health", "evil.example", 200),
        ("http://evil.example/health", "localhost", 403),
        ("HTTP://LOCALHOST:1/health?x=1", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://localhost?x=1", "localhost", 200),
        ("http://localhost/v1/models/none", "localhost", 404),
    ],
)
def test_a_target_in_absolute_form_is_accepted_and_its_host_counts(
    server: RunningServer, target: str, host: str, status: int
) -> None:
    """RFC 9112, 3.2.2."""
    sent = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{CLOSE}\r\n\r\n".encode()

    assert exchange(server, sent).status == status


def test_a_target_that_is_too_long_is_414(server: RunningServer) -> None:
    """RFC 9112, 3."""
    assert exchange(server, head(route=f"GET /{'a' * 40_000}")).status == 414


@pytest.mark.parametrize("before", [b"\r\n", b"\r\n\r\n"])
def test_empty_lines_before_a_request_are_passed_over(server: RunningServer, before: bytes) -> None:
    """RFC 9112, 2.2."""
    assert exchange(server, before + head(CLOSE, route="GET /health")).status == 200


@pytest.mark.parametrize(
    "line",
    ["X : a", "X: a\r\n folded", "X: a\rb", "X: a\0b", "Content-Length: +1", "Content-Length: 1, 2"],
    ids=["blank before colon", "folded", "bare CR", "NUL", "signed length", "two lengths"],
)
def test_fields_that_others_could_read_in_another_way_are_400(server: RunningServer, line: str) -> None:
    """RFC 9112, 2.2, 5.1, 5.2 and 6.3; RFC 9110, 5.5: and the connection is closed."""
    assert exchange(server, head(line, route="GET /health")).status == 400


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────


def chunked(*lines: str, version: str = "1.1") -> bytes:
    """A whole request whose body comes in chunks, with an extension and a trailer."""
    top = head("Content-Type: application/json", *lines)
    half = len(BODY) // 2
    pieces = b"".join(b"%x;a=b\r\n%s\r\n" % (len(each), each) for each in (BODY[:half], BODY[half:]))
    return top.replace(b"HTTP/1.1", b"HTTP/" + version.encode()) + pieces + b"0\r\nX: y\r\n\r\n"


@pytest.mark.parametrize("coding", ["chunked", "Chunked"])
def test_a_body_in_chunks_is_read(server: RunningServer, coding: str) -> None:
    """RFC 9112, 7.1: extensions and trailers that are not known are passed over."""
    answer = exchange(server, chunked(f"Transfer-Encoding: {coding}", CLOSE))

    assert json.loads(answer.body)["status"] == "completed"


@pytest.mark.parametrize(
    "lines",
    [["gzip, chunked"], ["gzip"], ["chunked, chunked"], ["gzip", "chunked"], ["identity"]],
)
def test_a_coding_that_is_not_known_is_refused_and_the_connection_closed(
    server: RunningServer, lines: list[str]
) -> None:
    """RFC 9112, 6.1 and 6.3: 501, or 400 where the end of the body cannot be known."""
    answer = exchange(server, chunked(*[f"Transfer-Encoding: {each}" for each in lines]))

    assert answer.status in (400, 501)


def test_length_and_chunks_together_are_refused(server: RunningServer) -> None:
    """RFC 9112, 6.1: that is how requests are smuggled."""
    assert exchange(server, chunked("Transfer-Encoding: chunked", "Content-Length: 5")).status == 400


# ── Expect ────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def expecting(
    server: RunningServer, *lines: str, route: str = "POST /v1/responses"
) -> Iterator[socket.socket]:
    """A client that holds its body back until it is told to go on."""
    top = head(
        "Content-Type: application/json",
        f"Content-Length: {len(BODY)}",
        "Expect: 100-continue",
        *lines,
        route=route,
    )
    with connected(server) as client:
        client.sendall(top)
        yield client


def test_a_client_that_asks_is_told_to_go_on(server: RunningServer) -> None:
    """RFC 9110, 10.1.1."""
    with expecting(server, CLOSE) as client:
        told = until(client, b"\r\n\r\n")
        client.sendall(BODY)
        answer = read(rest(client))

    assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.status == 200


def test_a_client_that_asks_in_vain_gets_its_answer_and_may_leave_the_body_out(server: RunningServer) -> None:
    """RFC 9110, 10.1.1: so nothing more is read from that connection."""
    with expecting(server, route="POST /nothing") as client:
        answer = read(rest(client))

    assert (answer.status, answer.headers["connection"]) == (404, "close")


def test_http_1_0_is_never_told_to_go_on(server: RunningServer) -> None:
    """RFC 9110, 10.1.1."""
    sent = post(BODY, "Expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0", 1)

    assert exchange(server, sent).status == 200


# ── HTTP/1.0 ──────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_to_http_1_0_has_no_chunks_and_ends_with_its_connection(server: RunningServer) -> None:
    """RFC 9112, 6.1: proxies that speak 1.0 pass them on as content."""
    answer = exchange(server, asking("hi", stream=True).replace(b"HTTP/1.1", b"HTTP/1.0", 1))

    assert "transfer-encoding" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert answer.body.startswith(b"event: response.created\n")
    assert answer.body.endswith(b"data: [DONE]\n\n")


# ── Upgrade ───────────────────────────────────────────────────────────────────────────────────────

H2C = ("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA")


@pytest.mark.parametrize("connection", ["Upgrade, HTTP2-Settings", "keep-alive, upgrade"])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_an_upgrade_that_is_not_served_is_passed_over_and_the_body_read(
    server: RunningServer, connection: str, in_chunks: bool
) -> None:
    """RFC 9110, 7.8: Java's client and `curl --http2` offer HTTP/2 with every first request."""
    lines = (*H2C, f"Connection: {connection}")
    sent = chunked("Transfer-Encoding: chunked", *lines) if in_chunks else post(BODY, *lines)

    with connected(server) as client:
        client.sendall(sent + head(CLOSE, route="GET /health"))
        told = rest(client)

    first, second = (read(b"HTTP/1.1 " + each) for each in told.split(b"HTTP/1.1 ")[1:])
    assert json.loads(first.body)["status"] == "completed"
    assert (second.status, second.body) == (200, b'{"status":"ok"}')


def test_an_upgrade_whose_body_comes_later_is_passed_over(server: RunningServer) -> None:
    """RFC 9110, 7.8: in pieces of one byte."""
    sent = post(BODY, *H2C, "Connection: Upgrade, close")
    with connected(server) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(len(sent)):
            client.sendall(sent[number : number + 1])
        answer = read(rest(client))

    assert json.loads(answer.body)["status"] == "completed"


def test_the_sdk_is_told_the_request_id(http: httpx.Client) -> None:
    """T2-21: under the name that it reads."""
    assert http.get("/v1/models").headers["x-request-id"].startswith("req_")

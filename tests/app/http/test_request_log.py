"""A refusal leaves one line, and what the client was told finds it (T2-21)."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.app.printing import Printing, printing
from tests.app.scripts import SCRIPT
from tests.security.sockets import head, rest
from tests.serving import connected, turnlog
from tests.waiting import until
from turnlog.app.http.request_log import without_content

Json = dict[str, Any]
ID = re.compile(r"req_[0-9a-f]{32}")
LEAST: Json = {"model": "scripted", "input": "hi"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Printing]:
    """A server as it is by default, with its lines as JSON, and keys."""
    folder = tmp_path_factory.mktemp("requests")
    turnlog("keys", "add", "ada", "--db", str(folder / "turnlog.db"))
    quiet = {"TURNLOG_LOG_LEVEL": "info", "TURNLOG_ACCESS_LOG": "false"}
    with printing(folder, SCRIPT, "json", **quiet) as running:
        yield running


@pytest.fixture(scope="module")
def key(printed: Printing) -> str:
    """A client's key."""
    return turnlog("keys", "add", "bob", "--db", str(printed.server.database)).stdout.strip()


@pytest.fixture
def http(printed: Printing, key: str) -> Iterator[httpx.Client]:
    """Bob's client."""
    with printed.server.http as client:
        client.headers["authorization"] = f"Bearer {key}"
        yield client


def line_of(printed: Printing, request_id: str) -> Json:
    """The one line that has this request id, which follows its answer."""
    (line,) = until(lambda: lines_of(printed, request_id))
    return line


def lines_of(printed: Printing, request_id: str) -> list[Json]:
    """The lines of the request that has this id, without what differs each time."""
    # Also a load has the id of the request that it was begun for.
    found = [json.loads(line) for line in printed.stderr().splitlines() if request_id in line]
    found = [line for line in found if line["event"].startswith("[http]")]
    for line in found:
        assert line.pop("request_id") == request_id
        assert line.pop("duration_ms", 0) >= 0
        del line["timestamp"]
    return found


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (LEAST | {"input": []}, (400, "invalid_request", "input")),
        (LEAST | {"temperature": 9}, (400, "invalid_request", "temperature")),
        (LEAST | {"model": "gpt-5"}, (404, "model_not_found", "model")),
        (
            LEAST | {"previous_response_id": "resp_x"},
            (404, "previous_response_not_found", "previous_response_id"),
        ),
        (
            LEAST | {"metadata": {"retention_seconds": 0}},
            (400, "invalid_request", "metadata.retention_seconds"),
        ),
    ],
)
def test_a_refusal_is_one_line_that_its_request_id_finds(
    printed: Printing, http: httpx.Client, body: Json, refusal: tuple[int, str, str]
) -> None:
    """T2-21: with owner, route, code and field; nothing of the content."""
    status, code, param = refusal

    answer = http.post("/v1/responses", json=body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert line_of(printed, answer.headers["x-request-id"]) == {
        "event": "[http] POST /v1/responses",
        "level": "info",
        "owner": "bob",
        "status": status,
        "code": code,
        "param": param,
    }


def test_what_never_gets_to_a_route_leaves_a_line_too(printed: Printing, http: httpx.Client) -> None:
    """T2-21: unknown routes and methods, no key, a foreign host, bodies that are none."""
    answers = {
        "route_not_found": http.get("/v1/nothing"),
        "method_not_allowed": http.delete("/health"),
        "invalid_api_key": http.get("/v1/models", headers={"authorization": "Bearer x"}),
        "host_not_allowed": http.get("/health", headers={"host": "evil.example"}),
        "origin_not_allowed": http.get("/health", headers={"origin": "https://evil.example"}),
        "unsupported_media_type": http.post("/v1/responses", content=b"x"),
        "role_not_allowed": http.get("/metrics"),
        "upgrade_required": http.get("/v1/responses", headers={"upgrade": "websocket"}),
    }

    for code, answer in answers.items():
        line = line_of(printed, answer.headers["x-request-id"])
        assert (line["code"], line["status"]) == (code, answer.status_code)
        assert "evil" not in json.dumps(line)


def test_what_is_not_http_leaves_a_line_and_has_an_id(printed: Printing) -> None:
    """T2-21: refused before there is a request."""
    with connected(printed.server) as client:
        client.sendall(b"GET / HTTP/9.9\r\n\r\n")
        told = rest(client)

    (request_id,) = {found.decode() for found in re.findall(rb"x-request-id: (\S+)", told)}
    line = line_of(printed, request_id)
    assert (line["code"], line["status"]) == ("invalid_http", 400)


def test_every_answer_has_an_id_of_its_own_and_a_good_one_leaves_no_line(
    printed: Printing, http: httpx.Client
) -> None:
    """T2-21: also those that follow each other on one connection, and streams."""
    answers = [
        http.get("/health"),
        http.post("/v1/responses", json=LEAST),
        http.post("/v1/responses", json=LEAST | {"stream": True}),
        http.options("/health"),
    ]

    ids = [answer.headers["x-request-id"] for answer in answers]
    assert all(ID.fullmatch(each) for each in ids)
    assert len(set(ids)) == len(ids)
    assert line_of(printed, http.get("/nothing").headers["x-request-id"])
    assert [lines_of(printed, each) for each in ids] == [[]] * len(ids)


@pytest.mark.parametrize("name", ["x-request-id", "x-client-request-id"])
def test_the_clients_own_id_is_kept_in_the_line(printed: Printing, http: httpx.Client, name: str) -> None:
    """T2-21: what could forge a line is replaced, and it is cut."""
    plain = http.get("/nothing", headers={name: "trace-1:a/b"})
    hostile = http.get("/nothing", headers={name.encode(): b'"} {\xe9' + b"x" * 500})

    line = line_of(printed, plain.headers["x-request-id"])
    assert line["client_request_id"] == "trace-1:a/b"
    line = line_of(printed, hostile.headers["x-request-id"])
    assert line["client_request_id"].startswith("____")
    assert len(line["client_request_id"]) == 128
    assert ID.fullmatch(plain.headers["x-request-id"])


def test_pipelined_requests_have_an_id_each(printed: Printing) -> None:
    """T2-21."""
    with connected(printed.server) as client:
        client.sendall(head(route="GET /health") * 2 + head("Connection: close", route="GET /health"))
        told = rest(client)

    assert len(set(re.findall(rb"x-request-id: (req_\S+)", told))) == 3


@pytest.mark.parametrize(
    ("param", "kept"),
    [
        ("temperature", "temperature"),
        ("metadata.retention_seconds", "metadata.retention_seconds"),
        ("metadata.my secret", "metadata"),
        ("tools[3].parameters", "tools[3].parameters"),
        ("input[0].content[1].surprise", "input[0].content[1]"),
        ("my secret", "(unknown)"),
        ("background", "background"),
    ],
)
def test_a_field_is_logged_as_far_as_the_api_names_it(param: str, kept: str) -> None:
    """T2-21: what lies behind may be what a client wrote."""
    assert without_content(param) == kept

"""What a WebSocket may cost, who may open one, and when it is closed (D-18, D-38, D-40)."""

import json
import os
import socket as sockets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Opcode
from websockets.sync.client import connect

from tests.app.http.keyed import WRONG_KEY, KeyedServer, keyed_serving
from tests.app.http.sockets import opened
from tests.app.scripts import HELLO, SCRIPT, STOP, entry, write_script
from tests.serving import LONG_S, RunningServer, connected, serving
from tests.waiting import until

Json = dict[str, Any]

HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive, Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[KeyedServer]:
    """A server with keys, where an owner may have two WebSockets."""
    with keyed_serving(tmp_path, SCRIPT, TURNLOG_MAX_WEBSOCKETS_PER_OWNER="2") as running:
        yield running


def refusal(server: RunningServer, path: str = "/v1/responses", **headers: str) -> tuple[int, str]:
    """The status and the code by which a handshake is refused."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    host = {"host": named.pop("host")} if "host" in named else {}
    with pytest.raises(InvalidStatus) as refused:
        connect(server.address.replace("http", "ws", 1) + path, additional_headers=named | host, proxy=None)
    body = json.loads(refused.value.response.body or b"")
    return refused.value.response.status_code, body["error"]["code"]


def test_the_handshake_is_checked_like_a_request(keyed: KeyedServer) -> None:
    """D-18: key, role, Origin; and an owner's share of connections."""
    alice, server = keyed.keys["alice"], keyed.server

    assert refusal(server) == (401, "invalid_api_key")
    assert refusal(server, authorization=f"Bearer {WRONG_KEY}") == (401, "invalid_api_key")
    assert refusal(server, authorization=f"Bearer {keyed.keys['ada']}") == (403, "role_not_allowed")
    assert refusal(server, authorization=f"Bearer {alice}", origin="https://evil.example") == (
        403,
        "origin_not_allowed",
    )
    # Such a page may send requests, but their answers it cannot read.
    assert refusal(server, authorization=f"Bearer {alice}", origin="http://localhost:3000") == (
        403,
        "origin_not_allowed",
    )
    with opened(server, key=alice) as first, opened(server, key=alice) as second:
        assert refusal(server, authorization=f"Bearer {alice}") == (429, "owner_limit_exceeded")
        assert [each.turn(input="hi")[-1]["type"] for each in (first, second)] == ["response.completed"] * 2


def test_a_foreign_host_opens_nothing(server: RunningServer) -> None:
    """DNS rebinding: a page cannot change its Host."""
    with connected(server) as client:
        client.sendall(HANDSHAKE.replace(b"127.0.0.1", b"evil.example") + b"\r\n")
        told = client.recv(4096)

    assert told.startswith(b"HTTP/1.1 403 ")
    assert b"host_not_allowed" in told


@pytest.mark.parametrize("says_something", [True, False])
def test_a_revoked_key_closes_its_connections(keyed: KeyedServer, says_something: bool) -> None:
    """D-18: at its next message, or soon without one; also while a turn runs."""
    with opened(keyed.server, key=keyed.keys["alice"]) as socket, keyed.client("bob") as bob:
        socket.send(input="hang", store=True)
        response_id = socket.until("response.output_text.delta")[0]["response"]["id"]
        keyed.file.revoke(keyed.key_ids["alice"])
        if says_something:
            socket.send(input="hi", stream_id="other")
        told = socket.until("error")[-1]
        code = socket.close_code()
        assert bob.get("/v1/models").status_code == 200

    assert (told["status"], told["error"]["code"], code) == (401, "invalid_api_key", 1008)
    with keyed.client("olga") as olga:
        until(lambda: olga.get(f"/v1/audit/responses/{response_id}").json().get("reason") == "client_abort")


def test_a_connection_has_a_bound_of_streams_and_of_what_waits(tmp_path: Path) -> None:
    """D-38: 16 turns run, 64 messages wait, 32 streams have names; what is too much is told so."""
    script = {"turns": [entry("hang", {"text": "Hel"}, {"hang": True}), HELLO]}
    arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, script)))
    with serving(tmp_path / "turnlog.db", *arguments) as server, opened(server) as socket:
        for number in range(32):
            socket.send(input="hang", stream_id=str(number))
        begun = {socket.until("response.output_text.delta")[-1]["stream_id"] for _ in range(16)}
        socket.send(input="hi", stream_id="one more")
        named = socket.until("error")[-1]
        for _ in range(64 - 16):
            socket.send(input="hi", stream_id="0")
        socket.send(input="hi", stream_id="0")
        waiting = socket.until("error")[-1]
        with server.http as http:
            metrics = http.get("/metrics").text

    assert len(begun) == 16
    assert (named["status"], named["error"]["code"]) == (400, "too_many_streams")
    assert (waiting["status"], waiting["error"]["code"]) == (429, "too_many_waiting_messages")
    assert waiting["error"]["headers"] == {"Retry-After": "1"}
    assert 'turnlog_active_turns{model="scripted"} 16.0' in metrics
    assert 'turnlog_refusals_total{code="too_many_streams"} 1.0' in metrics


def test_a_connection_ends_when_its_time_is_over_or_nothing_happens(tmp_path: Path) -> None:
    """Announced, so that clients open another; what runs is seen out first."""
    script = {"turns": [entry("slow", {"text": "Hel"}, {"sleep_ms": 1600}, {"text": "lo"}, STOP), HELLO]}
    arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, script)))
    environ = {"TURNLOG_WEBSOCKET_LIFETIME_S": "1.7", "TURNLOG_WEBSOCKET_IDLE_S": "0.4"}
    with (
        serving(tmp_path / "turnlog.db", *arguments, **environ) as server,
        opened(server) as idle,
        opened(server) as busy,
    ):
        busy.send(input="slow")
        first = busy.until("response.completed")[-1]
        announced = busy.until("error")[-1]
        codes = (busy.close_code(), idle.close_code())

    assert first["response"]["output_text"] == "Hello"
    assert announced["error"]["code"] == "websocket_connection_limit_reached"
    assert (announced["status"], codes) == (400, (1001, 1001))
    assert idle.connection.protocol.close_reason == "idle_timeout"


def test_a_client_that_never_reads_is_dropped_and_nobody_waits(tmp_path: Path) -> None:
    """R-310, for messages as for streams."""
    words: Json = {"turns": [entry("long", *[{"text": "word " * 2_000}] * 400, STOP), HELLO]}
    arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, words)))
    with (
        serving(tmp_path / "turnlog.db", *arguments, TURNLOG_SSE_DRAIN_TIMEOUT_MS="200") as server,
        ExitStack() as reading,
        opened(server) as other,
    ):
        for _ in range(5):
            client = reading.enter_context(connected(server))
            client.sendall(HANDSHAKE + b"\r\n")
            assert b" 101 " in client.recv(4096)
            client.sendall(
                frame(json.dumps({"type": "response.create", "model": "scripted", "input": "long"}))
            )
        assert other.turn(input="hi")[-1]["type"] == "response.completed"
        with server.http as http:
            until(lambda: 'turnlog_budget_in_use{budget="connections"} 2.0' in http.get("/metrics").text)


def frame(text: str, opcode: int = Opcode.TEXT, *, fin: bool = True) -> bytes:
    """A client's frame."""
    payload, mask = text.encode(), os.urandom(4)
    head = bytes([(0x80 if fin else 0) | opcode])
    size = len(payload)
    head += bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def test_a_message_may_come_in_any_pieces(server: RunningServer) -> None:
    """Also with the handshake, and as fragments of one byte."""
    message = json.dumps({"type": "response.create", "model": "scripted", "input": "hi", "store": False})
    fragments = [
        frame(letter, Opcode.TEXT if at == 0 else Opcode.CONT, fin=at == len(message) - 1)
        for at, letter in enumerate(message)
    ]
    with connected(server) as client:
        client.sendall(HANDSHAKE + b"\r\n" + b"".join(fragments))
        told = _until(client, b"response.completed")
        for at in range(len(sent := frame(message))):
            client.sendall(sent[at : at + 1])
        again = _until(client, b"response.completed")

    assert told.startswith(b"HTTP/1.1 101 ")
    assert b"x-request-id: req_" in told
    assert again


def _until(client: sockets.socket, sign: bytes) -> bytes:
    told = b""
    while sign not in told:
        piece = client.recv(65536)
        assert piece, told
        told += piece
    return told


def test_a_message_beyond_the_bound_of_a_body_closes_the_connection(tmp_path: Path) -> None:
    arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, {"turns": [HELLO]})))
    with (
        serving(tmp_path / "turnlog.db", *arguments, TURNLOG_MAX_BODY_BYTES="1000") as server,
        opened(server) as socket,
    ):
        socket.send(input="x" * 1000)

        assert socket.close_code() == 1009


def test_a_server_that_stops_ends_its_turns_and_says_that_it_restarts(tmp_path: Path) -> None:
    """R-393: the terminal frame, then the close by which clients come again."""
    script = {"turns": [entry("hang", {"text": "Hel"}, {"hang": True}), HELLO]}
    arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, script)))
    environ = {"TURNLOG_SHUTDOWN_GRACE_S": "0.3"}
    with (
        serving(tmp_path / "turnlog.db", *arguments, **environ) as server,
        opened(server) as socket,
        opened(server) as idle,
    ):
        socket.send(input="hang", store=True)
        socket.until("response.output_text.delta")
        server.process.terminate()
        last = socket.until("response.failed")[-1]
        codes = (socket.close_code(), idle.close_code())

        assert server.process.wait(LONG_S) == 0
    assert (last["response"]["error"]["code"], codes) == ("shutting_down", (1012, 1012))


def test_many_connections_that_do_nothing_cost_the_others_nothing(server: RunningServer) -> None:
    with ExitStack() as idle:
        many = [idle.enter_context(opened(server)) for _ in range(50)]
        with opened(server) as socket:
            assert socket.turn(input="hi")[-1]["type"] == "response.completed"
        assert many[-1].turn(input="hi")[-1]["type"] == "response.completed"


# ── without output ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("given", [[], "What is said?"])
def test_a_prompt_is_read_ahead(server: RunningServer, given: Any) -> None:
    """As Codex begins: nothing is said, and what was read is not read again."""
    instructions = " ".join(f"rule {number}" for number in range(40))
    with opened(server) as socket:
        told = socket.turn(generate=False, input=given, instructions=instructions, stream=True)
        warm = told[-1]["response"]
        then = socket.turn(input="hi", previous_response_id=warm["id"])[-1]["response"]

    assert [each["type"] for each in told] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
    assert warm["usage"]["input_tokens"] > 40
    assert then["output_text"] == "Hello"
    assert then["usage"]["input_tokens_details"]["cached_tokens"] > 70


def test_a_stored_turn_that_said_nothing_says_so_in_the_log(server: RunningServer) -> None:
    with opened(server) as socket:
        warm = socket.turn(generate=False, input="hi", store=True)[-1]["response"]
        refused = socket.turn(generate="no", input="hi")[-1]
    with server.http as http:
        events = http.get(f"/v1/responses/{warm['id']}/events").json()["data"]

    assert events[0]["data"]["generate"] is False
    assert "response.committed.v1" in [each["event"] for each in events]
    assert refused["error"]["param"] == "generate"


def test_a_whole_history_may_follow_a_prompt_that_was_read_ahead(server: RunningServer) -> None:
    """As Codex resumes a session: the calls in it are none of the response that it continues."""
    call = {"type": "function_call", "call_id": "call_x", "name": "add", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_x", "output": "3"}
    with opened(server) as socket:
        warm = socket.turn(generate=False, input=[], instructions="Add.")[-1]["response"]["id"]
        history = [{"role": "user", "content": "add"}, call, output, {"role": "user", "content": "hi"}]
        ended = socket.turn(previous_response_id=warm, input=history)[-1]

    assert ended["type"] == "response.completed"

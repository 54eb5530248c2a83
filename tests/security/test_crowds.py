"""Slow and half-open connections by the hundred, while somebody who behaves keeps his pace."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create
from tests.app.scripts import HELLO, STOP, entry
from tests.faults.witness import scripted
from tests.security.sockets import asking, head
from tests.serving import RunningServer, connected
from tests.waiting import until

EACH = 40
TURNS = 20
SCRIPT = {
    "turns": [
        entry("flood", *[{"text": "x" * 100_000}] * 30, STOP),
        entry("hang", {"text": "Hel"}, {"hang": True}),
        HELLO,
    ]
}
CROWDS = {
    "say nothing": b"",
    "half a head": head()[:-10],
    "half a body": asking("hi")[:-5],
    "take nothing of a stream": asking("flood", stream=True, store=False),
    "take nothing of an answer": asking("flood", store=False),
    "wait for ever": asking("hang"),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that has places for all of them, as a real one has."""
    environ = {
        "TURNLOG_MAX_CONNECTIONS": str(EACH * len(CROWDS) + 10),
        "TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL": "unbounded",
        "TURNLOG_MAX_STREAMS_PER_OWNER": "1000",
        "TURNLOG_MAX_QUEUED_TURNS_PER_OWNER": "1000",
    }
    with scripted(tmp_path, SCRIPT, **environ) as running:
        yield running


def test_hundreds_of_bad_connections_hold_up_nobody(server: RunningServer) -> None:
    """Slowloris, slow readers and half-open sockets, all of them at once."""
    idle = _files(server)
    with ExitStack() as stack, server.http as http:
        create(http, "hi")
        crowd = [stack.enter_context(connected(server)) for _ in range(EACH * len(CROWDS))]
        for number, client in enumerate(crowd):
            client.sendall(list(CROWDS.values())[number % len(CROWDS)])

        answered = [create(http, "hi")["status"] for _ in range(TURNS)]
        told = http.post("/v1/responses", json={"model": "scripted", "input": "hi", "stream": True})
        ready = http.get("/health/ready")

        assert answered == ["completed"] * TURNS
        assert read_stream(told.content)[-1]["type"] == "response.completed"
        assert ready.json()["status"] == "ok"
    until(lambda: _files(server) <= idle + 1)


def _files(server: RunningServer) -> int:
    """How many files and connections the server has open; 0 where the system does not say."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0

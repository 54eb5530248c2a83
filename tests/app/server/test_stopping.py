"""A server that is told to stop: what runs may end by itself, nothing new begins (R-393)."""

import json
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.app.printing import Printing, printing
from tests.app.scripts import STOP, Json, entry
from tests.serving import LONG_S
from tests.waiting import received, until

SCRIPT: Json = {
    "turns": [
        entry("long", {"text": "Hel"}, {"sleep_ms": 2_000}, {"text": "lo"}, STOP),
        entry("hang", {"text": "Hel"}, {"hang": True}),
    ]
}
LONG_GRACE: dict[str, Any] = {"TURNLOG_SHUTDOWN_GRACE_S": str(LONG_S), "TURNLOG_ACCESS_LOG": "false"}


@contextmanager
def streaming(http: httpx.Client, text: str) -> Iterator[Generator[bytes, None, None]]:
    """A stream that has its first word; what follows."""
    body = {"model": "scripted", "input": text, "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as answer:
        chunks = cast("Generator[bytes, None, None]", answer.iter_bytes())
        received(lambda: next(chunks, b""), b"output_text.delta")
        yield chunks


def told(printed: Printing, number: signal.Signals) -> None:
    """Send a signal; the server goes on for a while."""
    printed.server.process.send_signal(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_turn_ends_by_itself_and_no_new_one_begins(tmp_path: Path, number: signal.Signals) -> None:
    """R-393: readiness says so, the terminal says how many, and the exit code is 0."""
    with printing(tmp_path, SCRIPT, "text", **LONG_GRACE) as printed, printed.server.http as http:
        with streaming(http, "long") as chunks, printed.server.http as other:
            told(printed, number)
            until(lambda: other.get("/health/ready").status_code == 503)

            readiness = other.get("/health/ready").json()
            refused = other.post("/v1/responses", json={"model": "scripted", "input": "long"})
            alive = other.get("/health").status_code
            rest = b"".join(chunks)
        code = printed.server.process.wait(LONG_S)
        said = printed.stderr()

    assert readiness == {"status": "unavailable", "problems": ["the server is stopping"]}
    assert (refused.status_code, refused.json()["error"]["code"], alive) == (503, "shutting_down", 200)
    assert b'"type":"response.completed"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    assert code == 0
    assert "stopping: 1 turns are finishing, press Ctrl-C again to stop now" in said


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_turns_at_once(tmp_path: Path, second: signal.Signals) -> None:
    """R-393: with their last frame, which says why."""
    with printing(tmp_path, SCRIPT, "text", **LONG_GRACE) as printed, printed.server.http as http:
        with streaming(http, "hang") as chunks:
            told(printed, signal.SIGINT)
            until(lambda: "stopping: 1 turns are finishing" in printed.stderr())
            told(printed, second)
            rest = b"".join(chunks)
        code = printed.server.process.wait(LONG_S)

    failed = json.loads(rest.split(b"event: response.failed\ndata: ")[1].split(b"\n")[0])
    assert failed["response"]["error"]["code"] == "shutting_down"
    assert rest.endswith(b"data: [DONE]\n\n")
    assert code == 0


def test_a_server_on_which_nothing_runs_stops_at_once_and_says_nothing(tmp_path: Path) -> None:
    """R-393: whatever the grace is."""
    with printing(tmp_path, SCRIPT, "text", **LONG_GRACE) as printed:
        assert printed.server.stop() == 0
        assert "stopping" not in printed.stderr()

"""An engine that fails or hangs ends its turns as failed and says so; the process and the others go on."""

from collections.abc import Iterator
from threading import Event

import httpx
import pytest

from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create
from tests.app.scripts import HELLO, entry
from tests.faults.witness import scripted
from tests.serving import RunningServer
from tests.waiting import SOON_S
from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.adapters.scripted.script import parse_script
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import EngineOutput, Submission

SCRIPT = {
    "turns": [
        entry("raise", {"text": "Hel"}, {"raise": "out of memory"}),
        entry("hang", {"text": "Hel"}, {"hang": True}),
        entry("vanish", {"text": "Hel"}),
        HELLO,
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose engine has 300 ms for a token."""
    folder = tmp_path_factory.mktemp("trust")
    with scripted(folder, SCRIPT, TURNLOG_TOKEN_TIMEOUT_S="0.3") as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with server.http as client:
        yield client


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [("raise", 500, "server_error"), ("hang", 504, "engine_timeout"), ("vanish", 500, "server_error")],
)
def test_a_turn_whose_engine_breaks_fails_alone(
    http: httpx.Client, text: str, status: int, code: str
) -> None:
    """CVE-2026-114051; D-05, D-32: the client is told, the turn is failed, the next one runs."""
    body = {"model": "scripted", "input": text}
    told = read_stream(http.post("/v1/responses", json=body | {"stream": True}).content)
    whole = http.post("/v1/responses", json=body)
    after = create(http, "hi")

    assert (told[-1]["type"], told[-1]["response"]["error"]["code"]) == ("response.failed", code)
    assert (whole.status_code, whole.json()["error"]["code"]) == (status, code)
    assert after["status"] == "completed"
    assert http.get("/health/ready").json()["status"] == "ok"


def test_a_question_nobody_waits_for_any_more_does_not_end_the_engine() -> None:
    """`/health/ready` asks with a deadline; the answer to a question that was given up killed the thread."""
    script = b'{"turns": [{"steps": [{"text": "Hi"}, {"end": {}}]}]}'
    engine = ScriptedEngine(parse_script(script))
    busy, go_on, told = Event(), Event(), []

    def deliver(output: EngineOutput) -> None:
        busy.set()
        go_on.wait()
        told.append(output)

    submission = Submission(
        turn_id="turn",
        prompt=engine.render([Message("user", "hi")]),
        sampling=Sampling(temperature=1.0, top_p=1.0, seed=1),
        output_budget_tokens=5,
        constraint=None,
        tools=(),
    )
    engine.submit(submission, deliver)
    busy.wait()
    given_up = engine.ping()
    given_up.cancel()
    go_on.set()

    assert engine.ping().result(SOON_S) is None
    engine.close()
    assert len(told) == 2

"""`GET /metrics` of a real server: its counts are what its clients were answered."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.exposed import label_values, samples
from tests.app.http.test_turns import create, stream
from tests.app.scripts import write_script
from tests.serving import serving

CANARY = "canary-7f3a"


@pytest.fixture
def scripted(tmp_path: Path) -> tuple[str, ...]:
    """The options by which the usual script is served."""
    return ("--engine", "scripted", "--script", str(write_script(tmp_path)))


def metrics(http: httpx.Client) -> str:
    """The metrics as text."""
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def ask(http: httpx.Client, **fields: Any) -> int:
    """The status of a request for a turn."""
    return http.post("/v1/responses", json={"model": "scripted", "input": "hi"} | fields).status_code


def test_turns_and_refusals_are_counted_as_they_were_answered(
    tmp_path: Path, scripted: tuple[str, ...]
) -> None:
    with serving(tmp_path / "turnlog.db", *scripted) as server, server.http as http:
        usages = [create(http, text)["usage"] for text in ("hi", "hi", "cut")]
        stream(http, "hi", store=False)
        refused = [
            ask(http, input="boom"),
            ask(http, input="exhaust"),
            ask(http, model="gpt-5"),
            ask(http, model="gpt-5", stream=True),
            ask(http, temperature=3),
            http.get("/v1/nothing").status_code,
            http.get("/health", headers={"host": "evil.example"}).status_code,
        ]
        told = metrics(http)

    assert refused == [500, 500, 404, 404, 400, 404, 403]
    assert samples(told, "turns_total", "refusals_total", "turn_seconds_count") == {
        "turns_total{model=scripted,reason=,state=completed}": 3,
        "turns_total{model=scripted,reason=,state=incomplete}": 1,
        "turns_total{model=scripted,reason=error,state=failed}": 1,
        "turns_total{model=scripted,reason=stream_exhausted,state=failed}": 1,
        "turn_seconds_count{model=scripted,state=completed}": 3,
        "turn_seconds_count{model=scripted,state=incomplete}": 1,
        "turn_seconds_count{model=scripted,state=failed}": 2,
        "refusals_total{code=model_not_found}": 2,
        "refusals_total{code=invalid_request}": 1,
        "refusals_total{code=route_not_found}": 1,
        "refusals_total{code=host_not_allowed}": 1,
    }
    written = samples(told, "output_tokens_total", "models", "active_turns", "queue_depth")
    assert written == {
        "output_tokens_total{model=scripted}": sum(usage["output_tokens"] for usage in usages) + 2,
        "models{state=declared}": 0,
        "models{state=loading}": 0,
        "models{state=resident}": 1,
        "active_turns{model=scripted}": 0,
        "queue_depth{model=scripted}": 0,
    }


def test_no_label_is_an_owner_an_id_or_content(tmp_path: Path, scripted: tuple[str, ...]) -> None:
    """Nor anything else that a client wrote, such as the name of a model that is not there."""
    with serving(tmp_path / "turnlog.db", *scripted) as server, server.http as http:
        told = create(http, CANARY, metadata={CANARY: CANARY}, prompt_cache_key=CANARY, user=CANARY)
        ask(http, input=f"boom {CANARY}")
        ask(http, model=CANARY)
        ask(http, previous_response_id=CANARY)
        ask(http, **{CANARY: 1, "temperature": CANARY})
        http.get(f"/{CANARY}", headers={"x-request-id": CANARY})
        http.put(f"/v1/responses/{told['id']}")
        http.post("/v1/models/load", json={"name": CANARY})
        values = label_values(metrics(http))

    assert values == {
        *("scripted", "completed", "failed", "error", "", "fresh"),
        *("invalid_request", "model_not_found", "method_not_allowed", "previous_response_not_found"),
        "route_not_found",
        *("connections", "unauthenticated_connections", "stranger_log_lines", "chain_bytes"),
        *("running_turns", "waiting_turns", "waiting_bytes", "bytes_in_flight"),
        *("owner_reads", "conversation_bytes"),
        *("client_read_threads", "client_read_seconds", "audit_read_threads", "audit_read_seconds"),
        *("plan_threads", "plan_seconds", "render_seconds"),
        *("declared", "loading", "resident", "running", "warm", "weights"),
    }

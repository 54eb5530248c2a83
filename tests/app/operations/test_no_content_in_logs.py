"""Nothing that a client or a model writes is printed by a server, whatever becomes of it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.http.test_turns import create
from tests.app.printing import printing
from tests.app.scripts import STOP, Json, calling, entry
from tests.serving import turnlog
from turnlog.app.operations.logs import LogFormat

WORD = "canary-7f3a"
CANARY = f"<{WORD}>"
"""What is sent. No name: the type of a tool may be logged, if it looks like one."""

SCRIPT: Json = {
    "context_window": 200,
    "turns": [
        entry("raise", {"text": CANARY}, {"raise": f"no {CANARY} there"}),
        entry("exhaust", {"text": CANARY}),
        entry("hang", {"reasoning": CANARY}, {"text": CANARY}, {"hang": True}),
        entry("lost", {"end": {"finish_reason": "stop", "text": f"<tool_call>{CANARY}"}}),
        calling("call", {"id": CANARY, "name": CANARY, "arguments": f'{{"{CANARY}":1'}),
        entry("bad end", {"text": CANARY}, {"end": {"finish_reason": "error"}}),
        entry("say", {"reasoning": CANARY}, {"text": f"{CANARY}\n{CANARY}\x1b[2J"}, STOP),
        # Whatever else is said fits no entry, which the engine complains about by quoting it.
    ],
}

TOOL: Json = {"type": "function", "name": CANARY, "parameters": {"type": "object", CANARY: CANARY}}

FIELDS: tuple[Json, ...] = (
    {},
    {"model": CANARY},
    {"input": f"hang on {CANARY}", "max_output_tokens": CANARY},
    {"input": [{"role": CANARY, "content": CANARY}]},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": CANARY}]}]},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": f"data:{CANARY}"}]}]},
    {"input": [{"type": "item_reference", "id": CANARY}]},
    {"input": [{"type": "function_call_output", "call_id": CANARY, "output": CANARY}]},
    {"input": {CANARY: CANARY}},
    {"input": f"say {CANARY} " * 200},
    {"instructions": CANARY},
    {"instructions": [CANARY]},
    {"metadata": {CANARY: CANARY}},
    {"metadata": {CANARY: {CANARY: 1}}},
    {"metadata": {"retention_seconds": CANARY}},
    {"previous_response_id": CANARY},
    {"previous_response_id": {CANARY: 1}},
    {"prompt_cache_key": CANARY, "safety_identifier": CANARY, "user": CANARY, "cache_salt": CANARY},
    {"prompt_cache_key": f"{CANARY}\n" * 100},
    {"temperature": CANARY},
    {"tools": [TOOL]},
    {"tools": [TOOL], "tool_choice": {"type": "function", "name": f"{CANARY}-2"}},
    {"tools": [{"type": CANARY, "name": CANARY}]},
    {"tool_choice": CANARY},
    {"stop": [CANARY]},
    {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": CANARY}}}},
    {"text": {"format": {"type": CANARY}}},
    {"reasoning": {"effort": CANARY}},
    {"truncation": CANARY},
    {"include": [CANARY]},
    {"stream_options": {CANARY: CANARY}},
    {"store": CANARY},
    {CANARY: CANARY},
)

ANSWERED = ("say", "call", "lost", "raise", "exhaust", "bad end", "nothing fits")

HEADERS: tuple[dict[str, str], ...] = (
    {"content-type": f"text/{CANARY}"},
    {"content-encoding": CANARY},
    {"content-encoding": "gzip"},
    {"host": f"{CANARY}.example"},
    {"origin": f"http://{CANARY}.example"},
    {"authorization": f"Bearer {CANARY}"},
    {"x-api-key": CANARY},
    {"idempotency-key": CANARY, "x-stainless-retry-count": CANARY, "cookie": CANARY},
)

BODIES = (f'{{"{CANARY}', f'["{CANARY}"]', f'"{CANARY}"', f'{{"input": "{CANARY}\\ud800"}}')

GOTTEN = (
    f"/{CANARY}",
    f"/v1/responses/{CANARY}",
    f"/v1/responses/{CANARY}?stream=true",
    f"/v1/responses/{CANARY}?stream=true&starting_after={CANARY}",
    f"/v1/responses/{CANARY}/events?{CANARY}={CANARY}",
    f"/v1/models/{CANARY}",
    f"/v1/audit/responses?q={CANARY}",
    f"/v1/audit/responses?{CANARY}={CANARY}",
    f"/v1/audit/responses?since={CANARY}",
    f"/v1/audit/responses/{CANARY}",
    f"/v1/audit/chains/{CANARY}",
    f"/v1/audit/compare?a={CANARY}&b={CANARY}",
)

POSTED: tuple[tuple[str, Json], ...] = (
    ("/v1/models/load", {"name": CANARY}),
    ("/v1/models/swap", {"name": "scripted", "to": CANARY}),
    ("/v1/models/unload", {CANARY: CANARY}),
    (f"/v1/responses/{CANARY}/replay", {CANARY: CANARY}),
)


def everything(http: httpx.Client) -> set[int]:
    """Send the canary in all ways; the statuses of the answers."""
    return {answer.status_code for answer in answers(http)}


def answers(http: httpx.Client) -> Iterator[httpx.Response]:
    """The answers to all that can be sent, hostile or not."""
    least = {"model": "scripted", "input": f"say {CANARY}"}
    for fields in FIELDS:
        yield http.post("/v1/responses", json=least | fields)
        yield http.post("/v1/responses", json=least | {"stream": True} | fields)
    for text in ANSWERED:
        yield http.post("/v1/responses", json=least | {"input": f"{text} {CANARY}", "tools": [TOOL]})
        yield http.post("/v1/responses", json=least | {"input": f"{text} {CANARY}", "stream": True})
    for headers in HEADERS:
        yield http.post("/v1/responses", json=least, headers=headers)
    for body in BODIES:
        yield http.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    for path in GOTTEN:
        yield http.get(path)
    for path, fields in POSTED:
        yield http.post(path, json=fields)
    leave(http)
    yield http.request("DELETE", f"/v1/responses/{CANARY}")
    with suppress(httpx.RemoteProtocolError):  # what is no HTTP may be answered by hanging up
        yield http.request(WORD.upper(), f"/{CANARY}")


def leave(http: httpx.Client) -> None:
    """Hang up in the middle of an answer."""
    body = {"model": "scripted", "input": f"hang {CANARY}", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as answer:
        next(told for told in answer.iter_lines() if WORD in told)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_nothing_of_a_request_or_an_answer_is_printed(tmp_path: Path, log_format: LogFormat) -> None:
    """R-400: on stdout or stderr, in answers, failures and refusals, and at every level."""
    with printing(tmp_path, SCRIPT, log_format) as printed:
        with printed.server.http as http:
            statuses = everything(http)
        said = printed.text()

    assert statuses >= {200, 400, 403, 404, 405, 415, 500}
    assert "[http] POST /v1/responses" in said
    assert "[responses] the engine of model scripted failed" in said
    assert WORD not in said.lower()


def test_nothing_that_an_engine_says_when_it_fails_is_printed(tmp_path: Path) -> None:
    """It may quote the prompt. Whoever may read the turn finds it in its last event."""
    with printing(tmp_path, SCRIPT) as printed:
        with printed.server.http as http:
            answer = http.post("/v1/responses", json={"model": "scripted", "input": "raise"})
        said = printed.text()

    response_id = answer.headers["x-response-id"]
    told = turnlog("log", response_id, "--db", str(printed.server.database)).stdout
    assert f"the engine of model scripted failed at {response_id}" in said
    assert WORD not in said
    assert f"no {CANARY} there" in told


def test_nothing_is_printed_of_a_request_that_the_store_fails(tmp_path: Path) -> None:
    """Neither of what should have been written, nor of what was looked for."""
    with printing(tmp_path, SCRIPT) as printed, printed.server.http as http:
        create(http, f"say {CANARY}")
        with closing(sqlite3.connect(printed.server.database, isolation_level=None)) as other:
            for table in ("stored_events", "responses"):
                other.execute(f"ALTER TABLE {table} RENAME TO {table}_gone")

        written = http.post("/v1/responses", json={"model": "scripted", "input": f"say {CANARY}"})
        continued = http.post(
            "/v1/responses",
            json={"model": "scripted", "input": f"say {CANARY}", "previous_response_id": f"resp_{CANARY}"},
        )
        read = http.get(f"/v1/responses/resp_{CANARY}")
        said = printed.text()

    assert (written.status_code, continued.status_code, read.status_code) == (200, 500, 500)
    assert f"the turn {written.json()['id']} could not be stored" in said
    assert "domain.errors.ChainReadError (its message is not logged)" in said
    assert WORD not in said


# ── lines as a collector reads them ───────────────────────────────────────────────────────────────


def lines(text: str) -> list[dict[str, Any]]:
    """Lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]


def test_with_json_every_line_on_stderr_is_an_object(tmp_path: Path) -> None:
    with printing(tmp_path, SCRIPT, "json") as printed:
        with printed.server.http as http:
            everything(http)
        printed.text()

        told = lines(printed.stderr())

    assert all(line.keys() >= {"event", "level", "timestamp"} for line in told)
    assert {line["level"] for line in told} >= {"info", "error"}


def test_every_line_of_a_turn_says_which_turn_and_whose_it_is(tmp_path: Path) -> None:
    """On one connection, too, where a request follows that has nothing to do with it."""
    database = tmp_path / "turnlog.db"
    keys = {
        owner: turnlog("keys", "add", owner, "--db", str(database)).stdout.strip() for owner in ("ada", "bob")
    }
    turns: dict[str, str] = {}
    with printing(tmp_path, SCRIPT, "json") as printed:
        with printed.server.http as http:
            for owner, key in keys.items():
                for stream in (False, True):
                    body = {"model": "scripted", "input": "raise", "stream": stream}
                    headers = {"authorization": f"Bearer {key}"}
                    answer = http.post("/v1/responses", json=body, headers=headers)
                    turns[answer.headers.get("x-response-id") or _streamed_id(answer)] = owner
                    http.get("/health")
        printed.text()

        told = lines(printed.stderr())

    assert len(turns) == 4
    for response_id, owner in turns.items():
        own = [line for line in told if response_id in json.dumps(line)]
        events = sorted(line["event"].replace(response_id, "ID") for line in own)
        assert events == [
            "[http] POST /v1/responses",
            "[responses] the engine of model scripted failed at ID",
        ]
        assert {(line["response_id"], line["owner"]) for line in own} == {(response_id, owner)}
    others = [line for line in told if line["event"] == "[http] GET /health"]
    assert len(others) == 4
    assert not any("response_id" in line or "owner" in line for line in others)


def _streamed_id(answer: httpx.Response) -> str:
    first = next(line for line in answer.text.splitlines() if line.startswith("data: "))
    response_id: str = json.loads(first.removeprefix("data: "))["response"]["id"]
    return response_id

"""`Idempotency-Key` over HTTP, on real sockets: one turn, however often it is asked for (T2-26)."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI, UnprocessableEntityError

from tests.adapters.openai.wire import read_stream
from tests.app.http.keyed import keyed_serving
from tests.app.http.test_turns import refused
from tests.app.scripts import SCRIPT, write_script
from tests.faults.witness import Listener, acknowledged
from tests.serving import RunningServer, serving
from tests.waiting import until

Json = dict[str, Any]

AT_ONCE = 12


def headers(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def ask(http: httpx.Client, key: str, text: str = "hi", **fields: Any) -> httpx.Response:
    body = {"model": "scripted", "input": text} | fields
    return http.post("/v1/responses", json=body, headers=headers(key))


@contextmanager
def listening(http: httpx.Client, key: str, text: str) -> Iterator[Listener]:
    """The stream of a turn under a key."""
    body = {"model": "scripted", "input": text, "stream": True}
    with http.stream("POST", "/v1/responses", json=body, headers=headers(key)) as answer:
        yield Listener(answer)


def is_replayed(answer: httpx.Response) -> bool:
    assert answer.headers.get("idempotent-replayed", "true") == "true"
    return "idempotent-replayed" in answer.headers


def status(http: httpx.Client, response_id: str) -> str:
    found: str = http.get(f"/v1/responses/{response_id}").json()["status"]
    return found


@pytest.mark.parametrize("text", ["hi", "think", "cut"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_repeat_is_answered_with_the_same_bytes(http: httpx.Client, text: str, *, stream: bool) -> None:
    key = f"again {text} {stream}"
    answers = [ask(http, key, text, stream=stream) for _ in range(3)]

    assert [is_replayed(answer) for answer in answers] == [False, True, True]
    assert {answer.content for answer in answers} == {answers[0].content}
    assert {answer.headers["x-session-cache"] for answer in answers} == {"fresh"}
    if stream:
        read_stream(answers[0].content)


@pytest.mark.parametrize("stream", [False, True])
def test_requests_at_the_same_moment_get_one_turn(http: httpx.Client, *, stream: bool) -> None:
    """As JSON or as a stream, from the first frame to the last, whenever each of them joins."""
    key = f"at once {stream}"
    with ThreadPoolExecutor(AT_ONCE) as clients:
        asking = [clients.submit(ask, http, key, "slow", stream=stream) for _ in range(AT_ONCE)]
        answers = [each.result() for each in asking]

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sum(is_replayed(answer) for answer in answers) == AT_ONCE - 1
    assert ask(http, key, "slow", stream=stream).content == answers[0].content


def test_a_stream_is_joined_in_the_middle_and_told_from_its_beginning(http: httpx.Client) -> None:
    with listening(http, "middle", "slow") as first:
        first.until("output_text.delta")
        joined = ask(http, "middle", "slow", stream=True)
        first.until("[DONE]")

    assert is_replayed(joined)
    assert joined.content == first.told


def test_another_body_under_the_same_key_is_refused(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": "hi", "metadata": {"a": "1", "b": "2"}}
    turned = {"metadata": {"b": "2", "a": "1"}, "input": "hi", "model": "scripted"}
    first = http.post("/v1/responses", json=body, headers=headers("bodies"))

    again = http.post("/v1/responses", json=turned, headers=headers("bodies"))
    assert (is_replayed(again), again.json()) == (True, first.json())
    for other in ({"input": "ho"}, {"metadata": {"a": "1"}}, {"stream": True}, {"unknown": 1}):
        error = refused(http.post("/v1/responses", json=body | other, headers=headers("bodies")), 422)
        assert (error["type"], error["code"]) == ("invalid_request_error", "idempotency_key_reused")
        assert first.json()["id"] in error["message"]


def test_a_key_that_is_too_long_is_refused_and_an_empty_one_is_none(http: httpx.Client) -> None:
    assert ask(http, "k" * 255).status_code == 200
    assert refused(ask(http, "k" * 256), 400)["code"] == "string_above_max_length"
    assert ask(http, "").json()["id"] != ask(http, "").json()["id"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"model": "none"}, 404), ({"max_tokens": 5}, 400), ({"previous_response_id": "resp_gone"}, 404)],
)
def test_a_refusal_takes_no_key(http: httpx.Client, fields: Json, code: int) -> None:
    key = f"refused {json.dumps(fields)}"
    refused(ask(http, key, **fields), code)

    assert not is_replayed(answer := ask(http, key))
    assert answer.status_code == 200


def test_a_failed_turn_frees_its_key_and_its_repeat_is_an_attempt(http: httpx.Client) -> None:
    """R-336, D-32."""
    answers = [ask(http, "failing", "boom") for _ in range(2)]
    after = ask(http, "failing", "hi")

    ids = [*(answer.headers["x-response-id"] for answer in answers), after.json()["id"]]
    acknowledged(http, ids[-1], "persisted")
    audited = http.get(f"/v1/audit/responses/{ids[-1]}").json()
    assert [answer.status_code for answer in answers] == [500, 500]
    assert [is_replayed(answer) for answer in (*answers, after)] == [False] * 3
    assert [attempt["id"] for attempt in audited["attempts"]] == ids


def test_whoever_joins_a_turn_that_fails_is_told_so(http: httpx.Client) -> None:
    with listening(http, "fails", "fail late") as first:
        first.until("output_text.delta")
        joined = ask(http, "fails", "fail late", stream=True)
        first.until("[DONE]")

    assert (is_replayed(joined), joined.content) == (True, first.told)
    assert read_stream(joined.content)[-1]["type"] == "response.failed"
    assert not is_replayed(ask(http, "fails", "fail late", stream=True))


def test_a_turn_goes_on_without_its_client_until_somebody_joins_it(http: httpx.Client) -> None:
    with listening(http, "left", "slow") as first:
        first.until("output_text.delta")

    joined = ask(http, "left", "slow", stream=True)

    assert is_replayed(joined)
    assert joined.content.startswith(first.told)
    assert read_stream(joined.content)[-1]["response"]["status"] == "completed"


def test_a_turn_without_a_client_is_given_up_after_the_grace(tmp_path: Path) -> None:
    """And its key is free then."""
    arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, SCRIPT)))
    with (
        serving(tmp_path / "turnlog.db", *arguments, TURNLOG_IDEMPOTENCY_GRACE_S="0.05") as server,
        server.http as http,
    ):
        with listening(http, "left", "hang") as first:
            first.until("output_text.delta")
        until(lambda: status(http, first.response_id) == "failed")

        with listening(http, "left", "hang") as second:
            second.until("output_text.delta")

    assert second.response_id != first.response_id


def test_a_turn_that_is_not_stored_is_joined_while_it_runs_and_forgotten_afterwards(
    http: httpx.Client,
) -> None:
    """D-30."""
    with ThreadPoolExecutor(2) as clients:
        asking = [clients.submit(ask, http, "unstored", "slow", store=False) for _ in range(2)]
        ids = {each.result().json()["id"] for each in asking}

    afterwards = ask(http, "unstored", "slow", store=False)

    assert len(ids) == 1
    assert (afterwards.json()["id"] in ids, is_replayed(afterwards)) == (False, False)


def test_a_key_is_its_owners(tmp_path: Path) -> None:
    """D-18."""
    with keyed_serving(tmp_path) as keyed, keyed.client("alice") as alice, keyed.client("bob") as bob:
        answers = [ask(alice, "shared", "hi"), ask(bob, "shared", "ho"), ask(alice, "shared", "hi")]

    assert [is_replayed(answer) for answer in answers] == [False, False, True]
    assert answers[0].json() == answers[2].json()
    assert answers[1].json()["id"] != answers[0].json()["id"]


def test_the_official_client_sends_a_key_as_an_extra_header(server: RunningServer) -> None:
    with OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        asked: Json = {"model": "scripted", "input": "hi", "extra_headers": headers("sdk")}
        raw = [client.responses.with_raw_response.create(**asked) for _ in range(2)]
        with pytest.raises(UnprocessableEntityError, match="different body"):
            client.responses.create(**asked | {"input": "ho"})
        asked |= {"extra_headers": headers("sdk stream"), "stream": True}
        streams = [list(client.responses.create(**asked)) for _ in range(2)]

    assert raw[0].parse() == raw[1].parse()
    assert [answer.headers.get("idempotent-replayed") for answer in raw] == [None, "true"]
    assert streams[0] == streams[1]

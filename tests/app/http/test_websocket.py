"""WebSocket mode of the Responses API, over real sockets (D-40)."""

import json
import re
from typing import Any

import httpx
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.app.http.sockets import ENDS, opened
from tests.serving import RunningServer

Json = dict[str, Any]


def test_the_official_client_runs_turns_on_one_connection(server: RunningServer) -> None:
    client = OpenAI(base_url=f"{server.address}/v1", api_key="any")

    with client.responses.connect() as connection:
        connection.response.create(model="scripted", input="hi", store=False)
        first = [event for _, event in zip(range(10), connection, strict=False)]
        assert first[-1].type == "response.completed"
        connection.response.create(
            model="scripted", input="again", store=False, previous_response_id=first[-1].response.id
        )
        second = [event for _, event in zip(range(10), connection, strict=False)]

    assert second[-1].type == "response.completed"
    assert second[-1].response.previous_response_id == first[-1].response.id
    assert second[-1].response.output_text == "Hello"


@pytest.mark.parametrize("asked", ["hi", "think", "call two", "cut", "boom", "refuse", "exhaust"])
def test_a_turn_has_the_same_frames_over_sse(server: RunningServer, http: httpx.Client, asked: str) -> None:
    """D-01: one reading of the events."""
    body: Json = {"model": "scripted", "input": asked, "stream": True, "store": False}

    streamed = http.post("/v1/responses", json=body).text
    with opened(server) as socket:
        socket.send(**body)
        sent = socket.until("response.completed", "response.incomplete", "response.failed")

    frames = [json.loads(data) for data in re.findall(r"^data: (\{.*)$", streamed, re.MULTILINE)]
    assert [_shape(message) for message in sent] == [_shape(frame) for frame in frames]


def _shape(frame: Json) -> Json:
    """A frame without what differs from turn to turn."""
    text = re.sub(r'"(resp|msg|rs|fc|call)_[0-9a-f]{32}"', '"id"', json.dumps(frame))
    text = re.sub(r'"(\w*(?:_ms|_at|per_second|cached_tokens|input_tokens))": [0-9.e-]+', r'"\1": 0', text)
    text = re.sub(r'"cached_prefix_tokens": 0,? ?', "", text)
    shape: Json = json.loads(text)
    return shape


def test_without_a_handshake_the_route_says_what_it_is_for(http: httpx.Client) -> None:
    answer = http.get("/v1/responses")

    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
    assert answer.json()["error"]["code"] == "upgrade_required"


def test_a_handshake_for_another_path_is_refused_in_the_envelope(server: RunningServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(server.address.replace("http", "ws", 1) + "/v1/nothing", proxy=None)

    answer = refused.value.response
    assert (answer.status_code, json.loads(answer.body or b"")["error"]["code"]) == (404, "route_not_found")
    assert answer.headers["x-request-id"].startswith("req_")


def test_what_is_refused_has_the_status_of_http_and_closes_nothing(server: RunningServer) -> None:
    """D-06."""
    with opened(server) as socket:
        refused = []
        for sent in (b"\x00", "{", "[]", '{"type":"session.update"}', "[" * 200):
            socket.connection.send(sent)
            refused.append(socket.receive())
        refused += socket.turn(input="hi", background=True)
        refused += socket.turn(input="hi", stream_id="a", model="nobody")
        refused += socket.turn(input="hi", stream_id="")
        ended = socket.turn(input="hi")[-1]

    assert [(each["type"], each["status"], each["error"]["code"]) for each in refused] == [
        ("error", 400, "invalid_message"),
        ("error", 400, "invalid_json"),
        ("error", 400, "invalid_request"),
        ("error", 400, "invalid_request"),
        ("error", 400, "json_too_deep"),
        ("error", 400, "invalid_request"),
        ("error", 404, "model_not_found"),
        ("error", 400, "invalid_request"),
    ]
    assert [each.get("stream_id") for each in refused] == [None] * 6 + ["a", None]
    assert ended["type"] == "response.completed"


def test_a_turn_that_is_not_stored_goes_on_here_and_nowhere_else(
    server: RunningServer, http: httpx.Client
) -> None:
    """D-30, E5. Also that a fresh turn works where the id is unknown."""
    with opened(server) as socket, opened(server) as other:
        first = socket.turn(input="hi")[-1]["response"]
        then = socket.turn(input="again", previous_response_id=first["id"])[-1]["response"]
        stored = socket.turn(input="more", previous_response_id=then["id"], store=True)[-1]["response"]
        last = socket.turn(input="more", previous_response_id=stored["id"])[-1]
        elsewhere = [
            other.turn(input="again", previous_response_id=each["id"])[-1] for each in (first, stored)
        ]
        fresh = other.turn(input="hi")[-1]
    over_http = http.post(
        "/v1/responses", json={"model": "scripted", "input": "hi", "previous_response_id": first["id"]}
    )

    assert last["type"] == fresh["type"] == "response.completed"
    assert then["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    assert [each["error"]["code"] for each in elsewhere] == ["previous_response_not_found"] * 2
    assert over_http.status_code == 404
    events = http.get(f"/v1/responses/{stored['id']}/events").json()["data"]
    prompt = next(each["data"]["prompt"] for each in events if "prompt" in each["data"])
    assert "base" not in prompt or prompt["base"] is None, "the log must have all that the model read"


@pytest.mark.parametrize(
    "then", [{"input": "boom"}, {"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]}]
)
def test_a_continuation_that_fails_takes_what_it_continues_along(server: RunningServer, then: Json) -> None:
    with opened(server) as socket:
        first = socket.turn(input="hi")[-1]["response"]["id"]
        socket.send(previous_response_id=first, **then)
        socket.until("error")
        if then["input"] == "boom":
            socket.until("response.failed")
        again = socket.turn(previous_response_id=first, input="hi")[-1]

    assert again["error"]["code"] == "previous_response_not_found"


def test_a_continuation_that_is_cancelled_leaves_what_it_continues(
    server: RunningServer, http: httpx.Client
) -> None:
    with opened(server) as socket:
        first = socket.turn(input="hi")[-1]["response"]["id"]
        socket.send(input="hang", previous_response_id=first)
        second = socket.until("response.created")[-1]["response"]["id"]
        http.post(f"/v1/responses/{second}/cancel")
        cancelled = socket.until("response.incomplete")[-1]["response"]
        again = socket.turn(previous_response_id=first, input="hi")[-1]

    assert (cancelled["status"], again["type"]) == ("cancelled", "response.completed")


def test_streams_run_side_by_side_and_each_in_order(server: RunningServer) -> None:
    with opened(server) as socket:
        socket.send(input="slow", stream_id="a")
        socket.send(input="hi", stream_id="a")
        socket.send(input="hi", stream_id="b")
        ended: list[tuple[str, str]] = []
        while len(ended) < 3:
            message = socket.until(*ENDS)[-1]
            ended.append((message["stream_id"], message["response"]["output_text"]))

    assert ended == [("b", "Hello"), ("a", "Hello"), ("a", "Hello")]

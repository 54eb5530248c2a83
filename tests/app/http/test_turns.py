"""Turns over HTTP, on a real socket: answers, streams, chains, and reading them again."""

import json
import socket
from contextlib import closing
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.adapters.openai.wire import check_response, read_stream
from tests.listed import listed
from tests.serving import RunningServer
from tests.waiting import received, until
from turnlog.adapters.eventstore.store import open_reader

Json = dict[str, Any]


def create(http: httpx.Client, text: str | list[Json], **fields: Any) -> Json:
    """A turn's response object."""
    answer = http.post("/v1/responses", json={"model": "scripted", "input": text} | fields)
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


def stream(http: httpx.Client, text: str | list[Json], **fields: Any) -> bytes:
    """A turn's whole stream."""
    body = {"model": "scripted", "input": text, "stream": True} | fields
    answer = http.post("/v1/responses", json=body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    return answer.content


def refused(answer: httpx.Response, status: int) -> Json:
    """The error of an answer with that status."""
    assert answer.status_code == status, answer.text
    error: Json = answer.json()["error"]
    assert error.keys() == {"type", "message", "code", "param"}
    assert isinstance(error["code"], str)
    return error


def test_a_turn_answers_with_the_whole_response_object(http: httpx.Client) -> None:
    """R-249, R-251, R-255, R-256, R-341, D-03, G-155."""
    body = check_response(create(http, "hi", temperature=0.5, seed=7, metadata={"team": "a"}))

    assert body["status"] == "completed"
    assert body["output_text"] == "Hello"
    assert [item["type"] for item in body["output"]] == ["message"]
    assert body["usage"]["output_tokens"] == 2
    assert (body["temperature"], body["metadata"]) == (0.5, {"team": "a"})


@pytest.mark.parametrize(
    ("text", "terminal"),
    [
        ("hi", "response.completed"),
        ("think", "response.completed"),
        ("cut", "response.incomplete"),
        ("boom", "response.failed"),
        ("exhaust", "response.failed"),
        ("long", "response.completed"),
    ],
)
def test_a_stream_read_again_is_the_same_bytes_and_resumed_it_is_their_suffix(
    http: httpx.Client, text: str, terminal: str
) -> None:
    """D-01, D-02, D-05, law (a)."""
    live = stream(http, text)
    events = read_stream(live)
    address = f"/v1/responses/{events[0]['response']['id']}?stream=true"
    frames = live.decode().removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]

    assert events[-1]["type"] == terminal
    assert http.get(address).content == live
    for number in {0, 1, len(frames) // 2, len(frames) - 2}:
        rest = "".join(f"{frame}\n\n" for frame in frames[number + 1 :]) + "data: [DONE]\n\n"
        assert http.get(f"{address}&starting_after={number}").content.decode() == rest
    for beyond in (len(frames) - 1, len(frames) + 100):
        last = f"{frames[-1]}\n\ndata: [DONE]\n\n"
        assert http.get(f"{address}&starting_after={beyond}").content.decode() == last


def test_the_object_read_again_is_the_one_that_was_answered(http: httpx.Client) -> None:
    """E1, E2."""
    body = create(http, "hi")

    assert http.get(f"/v1/responses/{body['id']}").json() == body


def test_a_failed_turn_answers_with_an_error_and_can_be_read(http: httpx.Client) -> None:
    """D-12, D-32."""
    answer = http.post("/v1/responses", json={"model": "scripted", "input": "boom"})

    error = refused(answer, 500)
    assert (error["code"], error["message"]) == ("server_error", "it broke")
    body = check_response(http.get(f"/v1/responses/{answer.headers['x-response-id']}").json())
    assert (body["status"], body["error"]) == ("failed", {"code": "server_error", "message": "it broke"})
    assert body["output"][0]["status"] == "incomplete"


def test_a_chain_is_read_by_the_next_turn(http: httpx.Client) -> None:
    """R-157, R-179, E4: the engine reads what the chain holds."""
    first = create(http, "one two three", instructions="Be kind.")
    second = create(http, "four", previous_response_id=first["id"])

    # Words are tokens: three markers and seven words were read, then the answer's marker and word.
    assert first["usage"]["input_tokens"] == 8
    assert second["usage"]["input_tokens"] == 12
    assert second["instructions"] == "Be kind."
    assert second["previous_response_id"] == first["id"]


def test_inherited_instructions_are_read_shown_and_recorded_but_never_as_a_message(
    http: httpx.Client,
) -> None:
    """R-149, R-153, R-155, R-171, G-078, G-082, T2-25."""
    first = create(http, "hi", instructions="Be kind.")
    second = create(http, "hi", previous_response_id=first["id"])
    cleared = create(http, "hi", previous_response_id=second["id"], instructions="")

    recorded = http.get(f"/v1/responses/{second['id']}/events").json()["data"][0]["data"]
    assert (second["instructions"], cleared["instructions"]) == ("Be kind.", "")
    assert recorded["instructions"] == "Be kind."
    assert recorded["input"] == [{"role": "user", "content": "hi"}]
    # One turn more is read, four tokens, but no system message, three.
    assert cleared["usage"]["input_tokens"] == second["usage"]["input_tokens"] + 1


def test_an_id_can_be_continued_the_moment_its_stream_has_ended(http: httpx.Client) -> None:
    """E1, E2, R-351, G-043."""
    previous = None
    for _ in range(20):
        events = read_stream(stream(http, "hi", previous_response_id=previous, instructions=""))
        previous = events[-1]["response"]["id"]


@pytest.mark.parametrize("text", ["boom", "exhaust"])
def test_a_failed_turn_is_not_continued(http: httpx.Client, text: str) -> None:
    """D-12."""
    failed = http.post("/v1/responses", json={"model": "scripted", "input": text})

    body = {"model": "scripted", "input": "x", "previous_response_id": failed.headers["x-response-id"]}
    error = refused(http.post("/v1/responses", json=body), 400)

    assert (error["code"], error["param"]) == ("previous_response_not_completed", "previous_response_id")


def test_a_turn_that_is_not_to_be_stored_cannot_be_found_afterwards(http: httpx.Client) -> None:
    """D-30, R-346, G-076."""
    body = create(http, "hi", store=False)

    assert body["store"] is False
    refused(http.get(f"/v1/responses/{body['id']}"), 404)
    refused(http.get(f"/v1/responses/{body['id']}/events"), 404)
    again = {"model": "scripted", "input": "x", "previous_response_id": body["id"]}
    assert refused(http.post("/v1/responses", json=again), 404)["code"] == "previous_response_not_found"


def test_the_log_of_a_turn_tells_its_life(http: httpx.Client) -> None:
    """R-142, R-143, R-347, R-348, R-349: what it was asked, and which model of which process answered."""
    body = create(http, "hi", seed=7)

    log = http.get(f"/v1/responses/{body['id']}/events").json()

    assert log["object"] == "list"
    assert [entry["version"] for entry in log["data"]] == list(range(1, len(log["data"]) + 1))
    assert [entry["event"] for entry in log["data"]][:6] == [
        "response.created.v1",
        "response.generation_started.v1",
        "response.item_opened.v1",
        "response.item_extended.v1",
        "response.item_closed.v1",
        "response.committed.v1",
    ]
    assert log["data"][0]["data"]["sampling"] == {"temperature": 1.0, "top_p": 1.0, "seed": 7}
    assert log["data"][0]["data"]["instance_id"] == 1
    assert len(log["data"][0]["data"]["boot_id"]) == 36
    assert all(entry["time"].endswith("Z") for entry in log["data"])


def test_retention_is_kept_as_expiry(http: httpx.Client) -> None:
    """R-024, R-027, G-004."""
    for metadata, expected_s in (({"retention_seconds": 60}, 60), ({}, 604_800)):
        body = create(http, "hi", metadata=metadata)

        created = http.get(f"/v1/responses/{body['id']}/events").json()["data"][0]["data"]

        assert created["expires_at"] - body["created_at"] == expected_s


def test_a_stream_opens_before_the_engine_has_said_anything(http: httpx.Client) -> None:
    """R-261, G-118."""
    body = {"model": "scripted", "input": "wait", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as answer:
        chunks = answer.iter_text()
        told = received(lambda: next(chunks, ""), "event: response.in_progress")

    assert [line for line in told.splitlines() if line.startswith("event")] == [
        "event: response.created",
        "event: response.in_progress",
    ]


@pytest.mark.parametrize(
    ("text", "reason", "usage"),
    [("boom", "error", 0), ("exhaust", "stream_exhausted", 0), ("refuse", "finish_reason_error", 1)],
)
def test_a_failed_turn_tells_its_reason_and_what_it_cost(
    http: httpx.Client, text: str, reason: str, usage: int
) -> None:
    """R-318, R-320, R-323, R-324, D-05, D-12, G-130, G-131, G-132, G-141."""
    events = read_stream(stream(http, text))
    failed = events[-1]["response"]

    assert failed["incomplete_details"] == {"reason": reason}
    assert failed["usage"]["output_tokens"] == usage
    assert {item["status"] for item in failed["output"]} == {"incomplete"}
    assert "function_call_arguments" not in json.dumps(events[:-1])
    read = http.get(f"/v1/responses/{failed['id']}").json()
    assert read == {**failed, "expires_at": failed["created_at"] + 604_800}


def test_a_client_that_leaves_at_once_ends_its_turn(server: RunningServer, http: httpx.Client) -> None:
    """R-366, G-154."""
    host, port = server.address.removeprefix("http://").split(":")
    text = json.dumps({"model": "scripted", "input": "wait", "metadata": {"who": "passer-by"}})
    head = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())

    left = newest(server, reason="client_abort", who="passer-by")

    assert http.get(f"/v1/responses/{left}").json()["incomplete_details"] == {"reason": "client_abort"}


def test_a_client_that_leaves_a_stream_ends_its_turn(http: httpx.Client) -> None:
    """R-370, G-134, D-25, D14, E10."""
    body = {"model": "scripted", "input": "hang", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as answer:
        chunks = answer.iter_text()
        told = received(lambda: next(chunks, ""), "output_text.delta")
    response_id = json.loads(told.split("data: ")[1].split("\n")[0])["response"]["id"]

    events = read_stream(http.get(f"/v1/responses/{response_id}?stream=true").content)

    assert events[-1]["response"]["incomplete_details"] == {"reason": "client_abort"}
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_a_client_that_leaves_while_it_waits_for_json_ends_its_turn(
    server: RunningServer, http: httpx.Client
) -> None:
    """R-257, R-365, R-369, G-153."""
    host, port = server.address.removeprefix("http://").split(":")
    text = json.dumps({"model": "scripted", "input": "hang", "metadata": {"who": "leaver"}})
    head = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
        running = newest(server, status="in_progress", who="leaver")

    events = read_stream(http.get(f"/v1/responses/{running}?stream=true").content)

    assert events[-1]["response"]["incomplete_details"] == {"reason": "client_abort"}


def newest(server: RunningServer, *, who: str, **condition: str) -> str:
    """The newest response of that condition whose metadata says who asked, as soon as there is one."""
    with closing(open_reader(server.database)) as reader:

        def found() -> list[str]:
            return [row.response_id for row in listed(reader, metadata={"who": who}, **condition)]

        return until(found)[0]


def test_the_official_client_runs_a_conversation(server: RunningServer) -> None:
    client = OpenAI(base_url=f"{server.address}/v1", api_key="none")

    first = client.responses.create(model="scripted", input="hi")
    read = client.responses.retrieve(first.id)
    streamed = list(
        client.responses.create(model="scripted", input="hi", previous_response_id=first.id, stream=True)
    )
    with client.responses.stream(model="scripted", input="hi") as helper:
        final = helper.get_final_response()

    assert first.output_text == "Hello"
    assert streamed[-1].type == "response.completed"
    assert streamed[-1].response.previous_response_id == first.id
    assert final.output_text == "Hello"
    assert read == first
    assert [model.id for model in client.models.list()] == ["scripted"]

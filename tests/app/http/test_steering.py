"""Steering: text that a user types while the model works (D-40)."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types.responses.response_steer_accepted_event import ResponseSteerAcceptedEvent
from openai.types.responses.response_steer_failed_event import ResponseSteerFailedEvent
from openai.types.responses.response_steer_pending_event import ResponseSteerPendingEvent

from tests.app.http.sockets import ENDS, Socket, opened
from tests.app.scripts import ADD_1, STOP, calling, entry, write_script
from tests.serving import RunningServer, serving
from tests.waiting import until

Json = dict[str, Any]

PAUSE: Json = {"sleep_ms": 400}
"""Time enough for a client to steer before the end."""

SHORT: Json = {"sleep_ms": 100}
TEXTS: list[Json] = [{"text": "One "}, *(SHORT, {"text": "and one "}) * 20]
SCRIPT: Json = {
    "concurrency": 1,
    "turns": [
        entry("stop", {"text": "Stopped."}, STOP),
        entry("talk", *TEXTS, STOP),
        entry("think", {"reasoning": "hm"}, SHORT, {"reasoning": "well"}, SHORT, *TEXTS, STOP),
        entry("hold", {"text": "Hm"}, {"hang": True}),
        entry("brief", {"text": "Hi"}, PAUSE, STOP),
        entry("fail", {"text": "Hi"}, PAUSE, {"raise": "it broke"}),
        entry("call", {"text": "<tool_call>"}, PAUSE, *calling("", ADD_1)["steps"]),
        entry("42", {"text": "It is 42."}, STOP),
    ],
}


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that runs one turn at a time and takes its time for each."""
    folder = tmp_path_factory.mktemp("steered")
    script = write_script(folder, SCRIPT)
    with serving(folder / "turnlog.db", "--engine", "scripted", "--script", str(script)) as running:
        yield running


@pytest.fixture
def socket(steered: RunningServer) -> Iterator[Socket]:
    """A connection to it."""
    with opened(steered) as connection:
        yield connection


def steer(socket: Socket, response_id: str, text: Any = "stop") -> None:
    """Steer a response."""
    socket.send("response.steer", previous_response_id=response_id, input=text)


def begun(socket: Socket, asked: str, *, sign: str = "response.created", **fields: Any) -> str:
    """Ask for a turn and read up to a message; the response's id."""
    socket.send(input=asked, **fields)
    told = socket.until(sign)
    response_id: str = next(each for each in told if each["type"] == CREATED)["response"]["id"]
    return response_id


def kinds(messages: list[Json]) -> list[str]:
    """Their types, without those of a response that tell nothing here."""
    return [each["type"] for each in messages if "steer" in each["type"] or each["type"] in (*ENDS, CREATED)]


CREATED = "response.created"
DELTAS = ("response.output_text.delta", "response.reasoning_summary_text.delta")


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    ("asked", "sign"), [("talk", CREATED), ("talk", DELTAS[0]), ("think", DELTAS[1]), ("think", DELTAS[0])]
)
def test_a_running_response_ends_at_its_next_token_and_goes_on_with_the_input(
    steered: RunningServer, socket: Socket, asked: str, sign: str, store: bool
) -> None:
    first = begun(socket, asked, sign=sign, store=store, stream_id="a")

    steer(socket, first)
    told = socket.until("response.completed")

    assert kinds(told) == ["response.steer.accepted", "response.incomplete", CREATED, "response.completed"]
    accepted, cut, created, last = (each for each in told if each["type"] in kinds(told))
    assert ResponseSteerAcceptedEvent.model_validate(accepted).steer.previous_response_id == first
    assert cut["response"]["incomplete_details"] == {"reason": "steered"}
    assert cut["response"]["status"] == "incomplete"
    assert created["response"]["previous_response_id"] == first
    assert last["response"]["output_text"] == "Stopped."
    assert {each["stream_id"] for each in told} == {"a"}
    if store:
        assert_logged(steered, accepted["steer"]["id"], cut["response"], last["response"])


def assert_logged(server: RunningServer, steer_id: str, cut: Json, successor: Json) -> None:
    with server.http as http:

        def story(response_id: str, last: str) -> list[Json]:
            told: list[Json] = http.get(f"/v1/responses/{response_id}/events").json().get("data", [])
            return told if any(each["event"] == last for each in told) else []

        stories = {
            # The terminal frame goes out before its event is stored.
            response["id"]: until(partial(story, response["id"], last))
            for response, last in (
                (cut, "response.steers_committed.v1"),
                (successor, "response.committed.v1"),
            )
        }
        again = http.get(f"/v1/responses/{cut['id']}").json()
    events = {each["event"]: each["data"] for each in stories[cut["id"]]}
    assert events["response.committed.v1"]["reason"] == "steered"
    assert events["response.steer_accepted.v1"]["steer_id"] == steer_id
    committed = events["response.steers_committed.v1"]
    assert (committed["steer_ids"], committed["successor"]) == ([steer_id], successor["id"])
    assert stories[successor["id"]][0]["data"]["steers"] == [steer_id]
    assert again["incomplete_details"] == cut["incomplete_details"]


def test_what_is_stored_first_is_steered_too(tmp_path: Path) -> None:
    """D-22: with strict durability no frame goes out before its event is stored."""
    arguments = ("--engine", "scripted", "--script", str(write_script(tmp_path, SCRIPT)))
    with (
        serving(tmp_path / "turnlog.db", *arguments, TURNLOG_DURABILITY="strict") as server,
        opened(server) as socket,
    ):
        first = begun(socket, "talk", sign=DELTAS[0], store=True)
        steer(socket, first)
        told = socket.until("response.completed")
        accepted, cut, _, last = (each for each in told if each["type"] in kinds(told))
        assert_logged(server, accepted["steer"]["id"], cut["response"], last["response"])


def test_a_queued_response_is_steered_once_it_runs(socket: Socket) -> None:
    begun(socket, "brief", stream_id="before")
    socket.send(input="talk", stream_id="queued")
    queued = next(
        each["response"]["id"]
        for each in iter(socket.receive, None)
        if each["type"] == CREATED and each["stream_id"] == "queued"
    )

    steer(socket, queued)
    told: list[Json] = []
    while not told or told[-1].get("stream_id") != "queued" or told[-1]["type"] != "response.completed":
        told.append(socket.receive())

    own = [each for each in told if each["stream_id"] == "queued"]
    assert kinds(own) == ["response.steer.accepted", "response.incomplete", CREATED, "response.completed"]
    assert own[-1]["response"]["output_text"] == "Stopped."


def test_a_response_that_completes_by_itself_is_continued_too(socket: Socket) -> None:
    first = begun(socket, "brief", sign=DELTAS[0])

    steer(socket, first)
    told = socket.until("response.completed")
    then = socket.until("response.completed")

    assert kinds(told) == ["response.steer.accepted", "response.completed"]
    assert then[0]["response"]["previous_response_id"] == first
    assert then[-1]["response"]["output_text"] == "Stopped."


def test_input_waits_for_the_outputs_of_calls_and_no_call_is_cut(
    steered: RunningServer, socket: Socket
) -> None:
    first = begun(socket, "call", stream_id="a", store=True)
    steer(socket, first, [{"role": "user", "content": [{"type": "input_text", "text": "42, then stop"}]}])
    steer(socket, first, "stop at once")

    told = socket.until("response.steer.pending")
    second = socket.receive()
    output = {"type": "function_call_output", "call_id": "call_a", "output": "42"}
    last = socket.turn(previous_response_id=first, input=[output], stream_id="a", store=True)
    too_late = steered_late(socket, first)

    assert kinds(told)[-2:] == ["response.completed", "response.steer.pending"]
    accepted = [each["steer"]["id"] for each in told if each["type"] == "response.steer.accepted"]
    assert accepted == [told[-1]["steer"]["id"], second["steer"]["id"]]
    pending = ResponseSteerPendingEvent.model_validate(told[-1])
    assert [stub.to_dict() for stub in pending.required_input] == [
        {"type": "function_call_output", "call_id": "call_a", "name": "add"}
    ]
    assert last[-1]["response"]["output_text"] == "Stopped."
    with steered.http as http:
        events = http.get(f"/v1/responses/{last[-1]['response']['id']}/events").json()["data"]
    assert events[0]["data"]["steers"] == accepted
    assert [each["content"] for each in events[0]["data"]["input"]] == ["42", "42, then stop", "stop at once"]
    assert too_late["error"]["code"] == "response_already_completed"


def steered_late(socket: Socket, response_id: str) -> Json:
    """What the client is told that steers a response that has ended."""
    steer(socket, response_id)
    told = socket.receive()
    assert ResponseSteerFailedEvent.model_validate(told).steer.previous_response_id == response_id
    return told


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("", "invalid_input"),
        ([], "invalid_input"),
        ([{"role": "system", "content": "x"}], "invalid_input"),
        ([{"role": "user", "content": "x", "id": "msg_1"}], "invalid_input"),
        ([{"type": "function_call_output", "call_id": "x", "output": "x"}], "invalid_input"),
        ("x" * 2_000_000, None),
    ],
)
def test_only_messages_of_the_user_are_taken(socket: Socket, given: Any, code: str | None) -> None:
    first = begun(socket, "brief")

    steer(socket, first, given)
    told = socket.until("response.steer.failed", "response.steer.accepted")[-1]

    assert told.get("error", {}).get("code") == code
    if code:
        assert told["steer"] == {"previous_response_id": first, "input": given}


def test_what_cannot_be_committed_comes_back(steered: RunningServer, socket: Socket) -> None:
    failing = begun(socket, "fail", sign=DELTAS[0], store=True)
    steer(socket, failing)
    told = socket.until("response.steer.failed")
    not_here = steered_late(socket, "resp_nobody")
    done = steered_late(socket, socket.turn(input="stop")[-1]["response"]["id"])
    holding = begun(socket, "hold", stream_id="before")
    too_many = begun(socket, "brief")
    for _ in range(17):
        steer(socket, too_many)
    refused = socket.until("response.steer.failed")[-1]
    with steered.http as http:
        http.post(f"/v1/responses/{holding}/cancel")
    socket.until("response.completed")

    back = told[-1]
    accepted = next(each for each in told if each["type"] == "response.steer.accepted")
    assert back["error"]["code"] == "response_not_active"
    assert back["steer"] == {**accepted["steer"], "input": "stop"}
    assert not_here["error"]["code"] == "response_not_found"
    assert done["error"]["code"] == "response_already_completed"
    assert refused["error"]["code"] == "too_many_pending_steers"
    with steered.http as http:
        events = http.get(f"/v1/responses/{failing}/events").json()["data"]
    assert events[-1]["event"] == "response.steers_failed.v1"
    assert events[-1]["data"] == {"steer_ids": [back["steer"]["id"]], "code": "response_not_active"}


def test_a_client_that_leaves_owes_nothing(steered: RunningServer) -> None:
    with opened(steered) as socket:
        calling_id = begun(socket, "call", store=True)
        steer(socket, calling_id)
        socket.until("response.steer.pending")
        running = begun(socket, "talk", sign=DELTAS[0], store=True)
        steer(socket, running, "42")
        socket.until("response.steer.accepted")

    with steered.http as http:
        for each in (calling_id, running):
            assert _fate(http, each) in ("response.steers_failed.v1", "response.steers_committed.v1")


def _fate(http: httpx.Client, response_id: str) -> str:
    """The event that tells what became of the steering input, once there is one."""

    def fates() -> list[str]:
        events = http.get(f"/v1/responses/{response_id}/events").json()["data"]
        return [each["event"] for each in events if ".steers_" in each["event"]]

    return until(fates)[-1]

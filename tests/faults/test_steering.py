"""SIGKILL while responses are steered: no input is lost without a word, and none is applied twice (D-40)."""

from pathlib import Path
from random import Random
from time import sleep
from typing import Any

from tests.adapters.eventstore.locker import locked_by_another_process
from tests.app.http.sockets import Socket, opened
from tests.app.scripts import ADD_1, STOP, calling, entry
from tests.faults.witness import Json, acknowledged, events, kill, names, scripted, stories
from turnlog.domain.events import ResponseCreated, SteersCommitted, SteersFailed

PAUSE: Json = {"sleep_ms": 20}
SCRIPT: Json = {
    "turns": [
        entry("stop", {"text": "Stop"}, PAUSE, {"text": "ped."}, STOP),
        entry("hang", {"text": "One"}, {"hang": True}),
        entry("slow call", {"text": "Hm"}, {"sleep_ms": 200}, *calling("", ADD_1, text="Hm")["steps"]),
        calling("call", {"name": "add", "arguments": "{}"}),
        entry("talk", {"text": "One "}, PAUSE, {"text": "two "}, PAUSE, {"text": "three"}, STOP),
    ]
}


def test_input_that_was_accepted_fails_with_the_restart(tmp_path: Path) -> None:
    """Of a response that runs and of one that waits for outputs; the next server says so in the log."""
    with scripted(tmp_path, SCRIPT) as server, opened(server) as socket:
        running = _begun(socket, "hang", stream_id="a")
        waiting = _begun(socket, "slow call")
        accepted = {}
        for response_id in (running, waiting):
            socket.send("response.steer", previous_response_id=response_id, input="stop")
            accepted[response_id] = socket.until("response.steer.accepted")[-1]["steer"]["id"]
        socket.until("response.steer.pending")
        with server.http as http:
            acknowledged(http, waiting, "committed")
        kill(server)

    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        stored = {response_id: events(http, response_id) for response_id in accepted}

    assert "failed" in names(stored[running])
    assert "committed" in names(stored[waiting])
    for response_id, steer_id in accepted.items():
        assert stored[response_id][-1]["event"] == "response.steers_failed.v1"
        assert stored[response_id][-1]["data"] == {"steer_ids": [steer_id], "code": "server_restart"}


def test_in_a_loop_of_kills_each_accepted_input_has_one_fate(tmp_path: Path) -> None:
    random = Random(22)
    accepted: dict[str, str] = {}
    for _ in range(3):
        with scripted(tmp_path, SCRIPT) as server, opened(server) as socket:
            _steer_for_a_while(socket, random, accepted)
            kill(server)

    with scripted(tmp_path, SCRIPT) as server, opened(server) as socket:
        assert socket.turn(input="stop")[-1]["type"] == "response.completed"
    fates: dict[str, list[str]] = {steer_id: [] for steer_id in accepted}
    applied: dict[str, list[str]] = {}
    for story in stories(tmp_path / "turnlog.db").values():
        for event in (recorded.event for recorded in story):
            match event:
                case ResponseCreated(steers=steer_ids):
                    for steer_id in steer_ids:
                        applied.setdefault(steer_id, []).append(event.response_id)
                case SteersCommitted(steer_ids=steer_ids, successor=successor):
                    for steer_id in steer_ids:
                        fates.setdefault(steer_id, []).append(successor)
                case SteersFailed(steer_ids=steer_ids):
                    for steer_id in steer_ids:
                        fates.setdefault(steer_id, []).append("failed")

    assert accepted
    assert {steer_id: len(told) for steer_id, told in fates.items()} == dict.fromkeys(fates, 1)
    for steer_id, told in fates.items():
        assert applied.get(steer_id, []) == ([] if told == ["failed"] else told)


def test_input_that_the_store_does_not_take_comes_back(tmp_path: Path) -> None:
    """It is not acknowledged before it is stored; the turn itself goes on."""
    environ = {"TURNLOG_CHAIN_WRITE_WAIT_TIMEOUT_MS": "100"}
    with scripted(tmp_path, SCRIPT, **environ) as server, opened(server) as socket:
        socket.turn(input="stop")
        with locked_by_another_process(server.database):
            first = _begun(socket, "slow call")
            socket.send("response.steer", previous_response_id=first, input="stop")
            told = [each["type"] for each in socket.until("response.completed")]
            socket.send("response.steer", previous_response_id=first, input="stop")
            late = socket.until("response.steer.failed")[-1]

    assert "response.steer.failed" in told
    assert "response.steer.accepted" not in told
    assert late["error"]["code"] == "response_already_completed"


def _begun(socket: Socket, asked: str, **fields: Any) -> str:
    socket.send(input=asked, store=True, **fields)
    response_id: str = socket.until("response.created")[-1]["response"]["id"]
    return response_id


def _steer_for_a_while(socket: Socket, random: Random, accepted: dict[str, str]) -> None:
    """Steer responses at any moment, and stop in the middle of it."""
    for asked in random.choices(("talk", "call"), k=random.randint(1, 3)):
        socket.send(input=asked, store=True)
        response_id = socket.until("response.created")[-1]["response"]["id"]
        sleep(random.random() * 0.05)  # when the kill comes is what varies
        socket.send("response.steer", previous_response_id=response_id, input="stop")
        told = socket.until("response.steer.accepted", "response.steer.failed")[-1]
        if told["type"] == "response.steer.accepted":
            accepted[told["steer"]["id"]] = response_id
    sleep(random.random() * 0.04)

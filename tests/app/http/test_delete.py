"""Deletion over HTTP and by command: gone for the owner, known to auditors, and in no file (D-40)."""

from pathlib import Path

import httpx
import pytest

from tests.app.http.test_background import begun
from tests.app.http.test_turns import create, refused
from tests.app.scripts import SCRIPT
from tests.faults.witness import events, kill, listening, names, scripted
from tests.serving import turnlog

SECRET = "zanzibar"


def gone(http: httpx.Client, response_id: str) -> None:
    """Whatever a client may ask about the response, it is not there."""
    address = f"/v1/responses/{response_id}"
    for answer in (
        http.get(address),
        http.get(f"{address}?stream=true"),
        http.get(f"{address}/events"),
        http.post(f"{address}/cancel"),
        http.delete(address),
    ):
        refused(answer, 404)


def test_a_deleted_response_is_not_there_for_its_owner(http: httpx.Client) -> None:
    """D-37, D-40."""
    first = create(http, "hi")
    second = create(http, "hi", previous_response_id=first["id"])
    (item,) = second["output"]

    answer = http.delete(f"/v1/responses/{first['id']}")

    assert answer.json() == {"id": first["id"], "object": "response", "deleted": True}
    gone(http, first["id"])
    for previous in (first, second):
        body = {"model": "scripted", "input": "x", "previous_response_id": previous["id"]}
        error = refused(http.post("/v1/responses", json=body), 404)
        assert error["code"] == "previous_response_expired"
    assert http.get(f"/v1/responses/{second['id']}").json() == second
    http.delete(f"/v1/responses/{second['id']}").raise_for_status()
    reference = [{"type": "item_reference", "id": item["id"]}]
    refused(http.post("/v1/responses", json={"model": "scripted", "input": reference}), 404)


def test_auditors_see_that_it_was_there_and_who_deleted_it(http: httpx.Client) -> None:
    """D-14, D-40."""
    body = create(http, SECRET)
    http.delete(f"/v1/responses/{body['id']}").raise_for_status()

    log = http.get(f"/v1/audit/responses/{body['id']}/events")

    told = {each["event"]: each["data"] for each in log.json()["data"]}
    assert list(told)[-2:] == ["response.deleted.v1", "response.content_expired.v1"]
    assert told["response.deleted.v1"]["asked_by"] == "local"
    assert SECRET not in log.text
    assert http.get(f"/v1/audit/responses/{body['id']}").json()["content"] == "expired"


@pytest.mark.parametrize("background", [True, False])
def test_a_running_turn_is_cancelled_first(http: httpx.Client, background: bool) -> None:
    """D-02, D-40."""
    with listening(http, "hang", background=background) as listener:
        listener.until("output_text.delta")
        http.delete(f"/v1/responses/{listener.response_id}").raise_for_status()
        listener.until("[DONE]")

    assert b'"status":"cancelled"' in listener.told
    gone(http, listener.response_id)


def test_a_queued_turn_is_cancelled_first(tmp_path: Path) -> None:
    """D-40."""
    one_at_a_time = SCRIPT | {"concurrency": 1}
    with (
        scripted(tmp_path, one_at_a_time) as server,
        server.http as http,
        listening(http, "hang") as running,
    ):
        running.until("output_text.delta")
        queued = [begun(http, "hi")["id"] for _ in range(3)]
        for response_id in queued:
            http.delete(f"/v1/responses/{response_id}").raise_for_status()
        for response_id in queued:
            gone(http, response_id)


def test_deleted_words_are_in_no_file_after_a_vacuum(tmp_path: Path) -> None:
    """D-14, D-40: also if the server is killed as soon as it has answered."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        kept = create(http, "hi")
        said = create(http, SECRET, metadata={"team": SECRET}, instructions=SECRET)
        more = create(http, f"slow {SECRET}", previous_response_id=said["id"])
        assert any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("turnlog.db*"))
        for each in (said, more):
            http.delete(f"/v1/responses/{each['id']}").raise_for_status()
        kill(server)

    assert turnlog("vacuum", "--db", str(server.database)).returncode == 0

    assert [file for file in tmp_path.glob("turnlog.db*") if SECRET.encode() in file.read_bytes()] == []
    assert turnlog("log", kept["id"], "--db", str(server.database)).returncode == 0


@pytest.mark.parametrize("serves", [True, False], ids=["beside a server", "without one"])
def test_by_command_a_response_a_conversation_and_a_person_are_deleted(tmp_path: Path, serves: bool) -> None:
    """D-40."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        alone = create(http, SECRET)
        first = create(http, SECRET)
        second = create(http, SECRET, previous_response_id=first["id"])
        last = create(http, SECRET)
        names(events(http, last["id"]))
        if not serves:
            server.stop()

        def removed(*arguments: str) -> str:
            done = turnlog("rm", *arguments, "--yes", "--db", str(server.database))
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        assert removed(alone["id"]) == "1 response deleted"
        assert removed("--chain", second["id"]) == "2 responses deleted"
        assert removed("--owner", "local") == "1 response deleted"
        assert removed("--owner", "local") == "0 responses deleted"
        server.stop()
    turnlog("vacuum", "--db", str(server.database))
    assert [file for file in tmp_path.glob("turnlog.db*") if SECRET.encode() in file.read_bytes()] == []


def test_by_command_it_is_asked_before_anything_is_deleted(tmp_path: Path) -> None:
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        body = create(http, "hi")
        refusal = turnlog("rm", body["id"], "--db", str(server.database))

        assert (refusal.returncode, "for good?" in refusal.stdout) == (1, True)
        assert http.get(f"/v1/responses/{body['id']}").json() == body


@pytest.mark.parametrize("serves", [True, False], ids=["beside a server", "without one"])
def test_by_command_a_turn_is_cancelled(tmp_path: Path, serves: bool) -> None:
    """D-40: a server that was stopped has left it queued."""
    with (
        scripted(tmp_path, SCRIPT | {"concurrency": 1}) as server,
        server.http as http,
        listening(http, "hang") as running,
    ):
        running.until("output_text.delta")
        queued = begun(http, "hi")
        if not serves:
            server.stop()
        done = turnlog("cancel", queued["id"], "--db", str(server.database))

    assert (done.returncode, done.stdout.strip()) == (0, f"{queued['id']} is cancelled")
    told = turnlog("log", queued["id"], "--db", str(server.database)).stdout
    assert "was cancelled on request" in told

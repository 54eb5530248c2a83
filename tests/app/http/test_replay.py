"""Replays over HTTP and from the command line: a turn run again, told again, and checked."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.stories import FAILED, STARTED, opened, recorded
from tests.adapters.eventstore.stories import created as begun
from tests.app.http.keyed import keyed_serving
from tests.app.http.test_turns import create, newest, refused, stream
from tests.app.scripts import HELLO, entry, write_script
from tests.serving import RunningServer, serving, turnlog
from tests.waiting import until
from turnlog.app.cli.own_server import any_server

Json = dict[str, Any]

FAR_S = 4_000_000_000
"""A time, in Unix seconds, at which nobody runs these tests."""


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with two models, "plain" and "broken", of which the second fails whatever it is asked."""
    folder = tmp_path_factory.mktemp("replay")
    for name in ("plain", "broken"):
        (folder / name).mkdir()
    cut = entry("cut", {"text": "Hel"}, {"end": {"finish_reason": "length"}})
    plain = write_script(folder / "plain", {"turns": [cut, HELLO], "concurrency": 2})
    broken = write_script(folder / "broken", {"turns": [entry("", {"text": "Hel"}, {"raise": "it broke"})]})
    models = ("--engine", "scripted", "--model", f"plain={plain}", "--model", f"broken={broken}")
    with serving(folder / "turnlog.db", *models) as server:
        yield server


def replay(http: httpx.Client, response_id: str, **body: Any) -> Json:
    """What a replay answers."""
    answer = http.post(f"/v1/responses/{response_id}/replay", json=body)
    assert answer.status_code == 200, answer.text
    told: Json = answer.json()
    return told


def failed(http: httpx.Client, text: str = "hi") -> str:
    """A turn that fails; its id."""
    return http.post("/v1/responses", json={"model": "broken", "input": text}).headers["x-response-id"]


def id_in(told: str) -> str:
    """The first id of a response in a stream."""
    first = re.search(r'"id":"(resp_\w+)"', told)
    assert first
    return first[1]


def test_a_turn_is_run_again_as_a_new_response_that_names_the_original(http: httpx.Client) -> None:
    """Also with no body at all, which asks for nothing special; the original stays what it was."""
    original = create(http, "think", seed=5, metadata={"team": "a"})
    before = http.get(f"/v1/responses/{original['id']}/events").json()["data"]

    again = replay(http, original["id"])
    bare = http.post(f"/v1/responses/{original['id']}/replay").json()

    assert again["id"] not in (original["id"], bare["id"])
    assert (again["replay_of"], bare["replay_of"]) == (original["id"], original["id"])
    assert again["output_text"] == original["output_text"]
    assert again["metadata"] == {"team": "a"}
    assert "replay_of" not in original
    after = http.get(f"/v1/responses/{original['id']}/events").json()["data"]
    assert after[: len(before)] == before
    assert {event["event"] for event in after[len(before) :]} <= {"response.persisted.v1"}
    assert http.get(f"/v1/responses/{again['id']}").json() == again


def test_a_replay_streams_as_any_turn_does(http: httpx.Client) -> None:
    original = create(http, "think")

    body = {"stream": True, "set": {"temperature": 0.5}}
    told = http.post(f"/v1/responses/{original['id']}/replay", json=body).content

    replayed = id_in(told.decode())
    assert told.endswith(b"data: [DONE]\n\n")
    assert http.get(f"/v1/responses/{replayed}?stream=true").content == told
    assert http.get(f"/v1/responses/{replayed}").json()["temperature"] == 0.5


def test_what_was_streamed_is_told_again_from_the_log(http: httpx.Client) -> None:
    """Re-tell: byte for byte, fast or at the pace at which it came; no turn is made."""
    told = stream(http, "slow")
    response_id = id_in(told.decode())
    path = f"/v1/responses/{response_id}/replay"

    fast = http.post(path, json={"kind": "retell", "stream": True}).content
    paced = http.post(path, json={"kind": "retell", "stream": True, "pace": "original"}).content
    whole = http.post(path, json={"kind": "retell"}).json()

    assert fast == paced == told
    assert whole == http.get(f"/v1/responses/{response_id}").json()
    rows = http.get("/v1/audit/responses", params={"replay_of": response_id}).json()["data"]
    assert rows == []


def test_a_check_says_identical(http: httpx.Client) -> None:
    original = create(http, "call one", tools=[{"type": "function", "name": "add"}])

    verdict = replay(http, original["id"], kind="check")

    assert http.get(f"/v1/responses/{verdict['replay']}").json()["replay_of"] == original["id"]
    assert verdict == {
        "object": "replay.check",
        "original": original["id"],
        "replay": verdict["replay"],
        "identical": True,
        "compared": "text",
        "same_prompt": True,
        "alone": True,
        "first_difference": None,
    }


def test_a_check_is_over_when_its_client_leaves(http: httpx.Client, server: RunningServer) -> None:
    asked = {"model": "scripted", "input": "hang", "stream": True, "metadata": {"who": "checked"}}
    with server.http as other, other.stream("POST", "/v1/responses", json=asked) as live:
        next(line for line in live.iter_lines() if "output_text.delta" in line)
    original = newest(server, reason="client_abort", who="checked")

    with server.client(timeout_s=0.5) as other, pytest.raises(AssertionError, match="no answer to POST"):
        other.post(f"/v1/responses/{original}/replay", json={"kind": "check"})

    left = {"replay_of": original, "reason": "client_abort"}
    assert until(lambda: http.get("/v1/audit/responses", params=left).json()["data"])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"kind": "check", "model": "scripted"}, "model"),
        ({"kind": "retell", "seed": "new"}, "seed"),
        ({"kind": "check", "stream": True}, "stream"),
        ({"set": {"input": "other"}}, "set.input"),
        ({"set": {"temperature": 3}}, "temperature"),
        ({"sett": {}}, "sett"),
        ({"kind": "again"}, "kind"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(http: httpx.Client, body: Json, param: str) -> None:
    original = create(http, "hi")

    answer = http.post(f"/v1/responses/{original['id']}/replay", json=body)

    assert refused(answer, 400)["param"] == param


def test_what_is_not_there_or_not_over_is_not_replayed(http: httpx.Client, server: RunningServer) -> None:
    asked = {"model": "scripted", "input": "hang", "stream": True}
    with server.http as other, other.stream("POST", "/v1/responses", json=asked) as live:
        lines = live.iter_lines()
        running = id_in(next(line for line in lines if line.startswith("data: ")))

        early = refused(http.post(f"/v1/responses/{running}/replay", json={}), 400)
        unknown = refused(http.post("/v1/responses/resp_unknown/replay", json={}), 404)

    assert (early["code"], unknown["code"]) == ("not_ended", "response_not_found")


def test_a_failed_turn_is_brought_back_on_another_model(two_models: RunningServer) -> None:
    """D-27: a replay on another model is exempt from the identity guard, also within a chain."""
    with two_models.http as http:
        lost = failed(http)
        first = create(http, "hi", model="plain")["id"]
        continued = create(http, "and", model="plain", previous_response_id=first)["id"]

        back = replay(http, lost, model="plain")
        broken = http.post(f"/v1/responses/{continued}/replay", json={"model": "broken"})
        unknown = refused(http.post(f"/v1/responses/{lost}/replay", json={"model": "gone"}), 404)

    assert (back["status"], back["model"], back["replay_of"]) == ("completed", "plain", lost)
    assert broken.json()["error"]["message"] == "it broke"
    assert (unknown["code"], unknown["param"]) == ("model_not_found", "model")


def test_an_operator_runs_again_what_it_may_read(tmp_path: Path) -> None:
    """D-18: a turn that failed, its replay that went well, and a replay of that; no other."""
    lost = replace(begun("resp_lost"), model="scripted", expires_at=FAR_S)
    with opened(tmp_path / "turnlog.db") as store:
        store.journal.append(recorded("resp_lost", lost, STARTED, FAILED)).result()

    with keyed_serving(tmp_path) as keyed, keyed.client("olga") as olga, keyed.client("alice") as alice:
        again = replay(olga, "resp_lost")
        once_more = replay(olga, again["id"])
        read = olga.get(f"/v1/audit/responses/{again['id']}").json()
        other = olga.post(f"/v1/responses/{create(alice, 'hi')['id']}/replay")

    assert (again["status"], once_more["replay_of"], read["content"]) == ("completed", again["id"], "shown")
    assert refused(other, 403)["code"] == "forbidden"


def test_all_that_failed_are_replayed_once_they_can_be(two_models: RunningServer) -> None:
    """The command line: a dry run names them, a run brings them back, a second run finds none."""
    with two_models.http as http:
        lost = [failed(http, f"number {number}") for number in range(5)]
        arguments = ("replay", "--failed", "--since", "1h", "--reason", "error", "--of-model", "broken")
        database = ("--db", str(two_models.database))
        dry = turnlog(*arguments, "--dry-run", *database)
        vain = turnlog(*arguments, *database)
        http.post("/v1/models/swap", json={"name": "broken", "to": "plain"}).raise_for_status()
        real = turnlog(*arguments, "--json", *database)
        none = turnlog(*arguments, *database)
        http.post("/v1/models/swap", json={"name": "broken", "to": "broken"}).raise_for_status()

    assert all(response_id in dry.stdout for response_id in lost)
    assert (vain.returncode, real.returncode, none.returncode) == (1, 0, 0)
    assert vain.stdout.startswith("5 replayed: 0 succeeded, 5 failed\n")
    assert vain.stdout.count("it broke") == 5
    told = [json.loads(line) for line in real.stdout.splitlines()]
    assert {one["original"] for one in told} == set(lost)
    assert {one["status"] for one in told} == {"completed"}
    assert none.stdout == "0 failed turns not yet retried\n"


def test_a_model_that_is_served_no_more_keeps_no_other_from_its_replays(tmp_path: Path) -> None:
    scripts = {name: tmp_path / f"{name}.json" for name in ("gone", "there")}
    for path in scripts.values():
        path.write_text(json.dumps({"turns": [entry("", {"raise": "it broke"})]}))
    declared = {name: ("--model", f"{name}={path}") for name, path in scripts.items()}
    database = tmp_path / "turnlog.db"
    scripted = ("--engine", "scripted")
    with serving(database, *scripted, *declared["gone"], *declared["there"]) as server, server.http as http:
        for name in scripts:
            for _ in range(2):
                http.post("/v1/responses", json={"model": name, "input": "hi"})
        assert server.stop() == 0
    scripts["there"].write_text(json.dumps({"turns": [HELLO]}))

    with serving(database, *scripted, *declared["there"]):
        replayed = turnlog("replay", "--failed", "--json", "--db", str(database))

    assert replayed.returncode == 1
    assert [json.loads(line)["status"] for line in replayed.stdout.splitlines()] == [
        *["refused"] * 2,
        *["completed"] * 2,
    ]


def test_a_replay_that_was_cut_short_by_its_limit_has_brought_its_turn_back(
    two_models: RunningServer,
) -> None:
    with two_models.http as http:
        lost = failed(http, "cut")
        cut = replay(http, lost, model="plain")
        listed = turnlog("replay", "--failed", "--dry-run", "--db", str(two_models.database))

    assert cut["status"] == "incomplete"
    assert lost not in listed.stdout


def test_the_command_line_replays_one_turn_in_each_way(two_models: RunningServer) -> None:
    with two_models.http as http:
        original = create(http, "hi", model="plain")["id"]
        lost = failed(http)
    database = ("--db", str(two_models.database))

    again = turnlog("replay", original, "--set", "temperature=0.1", "--seed", "new", *database)
    streamed = turnlog("replay", original, "--restream", *database)
    told = turnlog("replay", original, "--tell", *database)  # its name in 0.1
    check = turnlog("replay", original, "--check", *database)
    vain = turnlog("replay", lost, *database)
    wrong = turnlog("replay", original, "--set", "temperature=hot", *database)
    both = turnlog("replay", original, "--check", "--restream", *database)
    neither = turnlog("replay", *database)

    assert again.stdout.startswith("Hello\nresp_")
    assert streamed.stdout == told.stdout == f"Hello\n{original} completed, streamed again\n"
    assert check.stdout.startswith("identical in text")
    assert (vain.returncode, vain.stderr) == (1, "failed: it broke\n")
    assert (wrong.returncode, both.returncode, neither.returncode) == (2, 2, 2)
    assert "temperature must be a number" in wrong.stderr
    assert "exclude each other" in both.stderr
    assert "--failed" in neither.stderr


def test_without_a_server_the_command_starts_one_for_itself(tmp_path: Path) -> None:
    script = write_script(tmp_path, {"turns": [HELLO]})
    database = tmp_path / "turnlog.db"
    with serving(database, "--engine", "scripted", "--script", str(script)) as server, server.http as http:
        original = create(http, "hi")["id"]
        assert server.stop() == 0

    environ = {"TURNLOG_ENGINE": "scripted", "TURNLOG_SCRIPT": str(script)}
    again = turnlog("replay", original, "--db", str(database), **environ)
    broken = turnlog("replay", original, "--db", str(database), TURNLOG_ENGINE="scripted")

    assert again.stdout.startswith("Hello\nresp_")
    assert "starting one for this command" in again.stderr
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "--engine scripted requires --script" in broken.stderr


def test_the_server_that_a_command_starts_is_no_program_of_the_folder_it_is_called_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many projects have a package named app."""
    script = write_script(tmp_path, {"turns": [HELLO]})
    database = tmp_path / "turnlog.db"
    monkeypatch.setenv("TURNLOG_ENGINE", "scripted")
    monkeypatch.setenv("TURNLOG_SCRIPT", str(script))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    (tmp_path / "app" / "__main__.py").write_text("raise SystemExit('the wrong program')")
    monkeypatch.chdir(tmp_path)

    with any_server(database) as server:
        models = server.get("/v1/models")["data"]

    assert [model["id"] for model in models] == ["scripted"]

"""An engine that crashes: its turns end whole, its model comes back, and nobody else notices."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create, refused, stream
from tests.app.scripts import HELLO, STOP, entry
from tests.faults.witness import Json, acknowledged, continued, error_code, kill, listening, replay, scripted
from tests.serving import RunningServer, serving
from tests.tiny_model import make_tiny_model
from tests.waiting import until
from turnlog.app.models.crashes import MOST_CRASHES

SCRIPT: Json = {
    "concurrency": 2,
    "turns": [
        entry("crash", {"text": "Hel"}, {"crash": True}),
        entry("slowly crash", {"text": "Hel"}, {"sleep_ms": 200}, {"crash": True}),
        entry("hang", {"text": "Hel"}, {"hang": True}),
        entry("slow hi", {"text": "Hel"}, {"sleep_ms": 1_000}, {"text": "lo"}, STOP),
        HELLO | {"match": "hi"},
    ],
}


def model(http: httpx.Client, name: str = "scripted") -> Json:
    """The object of a model."""
    found: Json = http.get(f"/v1/models/{name}").json()
    return found


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a server with the scripted engine, which can play a crash."""
    with scripted(tmp_path, SCRIPT) as server, server.http as client:
        yield client


def test_a_crash_ends_the_running_turns_whole_and_the_next_one_runs(http: httpx.Client) -> None:
    """D-12: partial output kept, one terminal frame, the same bytes when read again."""
    with listening(http, "hang") as beside:
        beside.until("output_text.delta")
        told = stream(http, "crash now")
        beside.until("[DONE]")
    after = create(http, "hi")

    for frames in (read_stream(told), read_stream(beside.told)):
        failed = frames[-1]["response"]
        assert failed["incomplete_details"] == {"reason": "engine_crashed"}
        assert failed["output_text"] == "Hel"
    failed_id = read_stream(told)[0]["response"]["id"]
    assert acknowledged(http, failed_id, "failed")[-1]["data"]["reason"] == "engine_crashed"
    assert replay(http, failed_id) == told
    assert error_code(continued(http, failed_id)) == (400, "previous_response_not_completed")
    assert after["status"] == "completed"
    seen = model(http)
    assert (seen["state"], seen["restarts"], seen["instance_id"]) == ("resident", 1, 1)
    assert 'turnlog_engine_crashes_total{model="scripted"} 1.0' in http.get("/metrics").text
    assert seen["last_crash"]["reason"] == "its script says so"


def test_a_turn_that_was_lost_in_a_crash_is_run_again_by_a_replay(http: httpx.Client) -> None:
    """Beside a turn that crashed the engine, another one that did nothing."""
    with listening(http, "slow hi") as innocent:
        innocent.until("output_text.delta")
        stream(http, "crash now")
        innocent.until("[DONE]")
    acknowledged(http, innocent.response_id, "failed")

    again = http.post(f"/v1/responses/{innocent.response_id}/replay", json={})

    assert again.json()["status"] == "completed"
    assert again.json()["replay_of"] == innocent.response_id


def test_a_client_that_waits_for_json_gets_503(http: httpx.Client) -> None:
    """D-32, R-004."""
    answer = http.post("/v1/responses", json={"model": "scripted", "input": "crash now"})

    error = refused(answer, 503)
    assert (error["code"], error["type"]) == ("engine_crashed", "server_error")


def test_turns_that_wait_run_on_the_engine_that_comes_next(http: httpx.Client) -> None:
    """The lane is full when the engine crashes; those in the queue hear nothing of it."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        hanging = stack.enter_context(listening(http, "hang"))
        hanging.until("output_text.delta")
        crashing = stack.enter_context(listening(http, "slowly crash"))
        crashing.until("output_text.delta")
        waiting = [pool.submit(create, http, "hi") for _ in range(4)]
        crashing.until("response.failed")
        answers = [each.result() for each in waiting]

    assert [answer["status"] for answer in answers] == ["completed"] * 4


def test_a_prompt_that_crashes_twice_in_a_row_is_refused_for_a_while(http: httpx.Client) -> None:
    for _ in range(2):
        stream(http, "crash now")

    answer = http.post("/v1/responses", json={"model": "scripted", "input": "crash now"})

    error = refused(answer, 400)
    assert (error["code"], error["param"]) == ("prompt_crashed_engine", "input")
    assert "is refused until 20" in error["message"]
    assert create(http, "hi")["status"] == "completed"


def test_after_the_fifth_crash_the_model_stays_away_until_an_operator_loads_it(http: httpx.Client) -> None:
    for number in range(MOST_CRASHES):
        stream(http, f"crash {number}")
    until(lambda: model(http)["unavailable"])

    refusal = http.post("/v1/responses", json={"model": "scripted", "input": "hi"})
    ready = http.get("/health/ready")
    loaded = http.post("/v1/models/load", json={"name": "scripted"})

    error = refused(refusal, 503)
    assert (error["code"], error["type"]) == ("model_unavailable", "server_error")
    assert "crashed 5 times within 10 minutes" in error["message"]
    assert (ready.status_code, ready.json()["problems"]) == (503, [error["message"]])
    assert (loaded.json()["state"], loaded.json()["unavailable"]) == ("resident", None)
    assert create(http, "hi")["status"] == "completed"
    assert http.get("/health/ready").status_code == 200


# ── with processes ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of two tiny models, each in a process of its own."""
    folder = tmp_path_factory.mktemp("tiny")
    for name in ("one", "two"):
        make_tiny_model(folder / name, context_window_tokens=100_000)
    arguments = [f"--model={name}={folder / name}" for name in ("one", "two")]
    with serving(folder / "turnlog.db", *arguments) as server, server.http as client:
        for name in ("one", "two"):
            create(client, "hi", model=name, max_output_tokens=1)
        yield server


ENDS = {"killed": signal.SIGKILL, "aborted": signal.SIGABRT, "out of bounds": signal.SIGSEGV}


@pytest.mark.parametrize("name", ENDS)
def test_a_process_that_dies_fails_its_turns_and_no_others(tiny: RunningServer, name: str) -> None:
    with tiny.http as http, ExitStack() as stack:
        long_turns = [
            stack.enter_context(
                listening(http, "go on", model=model_name, max_output_tokens=90_000, temperature=0)
            )
            for model_name in ("one", "one", "two")
        ]
        for turn in long_turns:
            turn.until("output_text.delta")
        http.post("/v1/models/load", json={"name": "one"})
        old = model(http, "one")

        os.kill(old["process_id"], ENDS[name])

        for turn in long_turns[:2]:
            turn.until("[DONE]")
        after = create(http, "hi", model="one", max_output_tokens=3)
        long_turns[2].until("output_text.delta")
        beside = long_turns[2].ended
        new = model(http, "one")

    for turn in long_turns[:2]:
        failed = read_stream(turn.told)[-1]["response"]
        assert failed["incomplete_details"] == {"reason": "engine_crashed"}
        assert failed["output_text"]
        assert signal.Signals(ENDS[name]).name in failed["error"]["message"]
    assert not beside
    assert after["status"] == "incomplete"
    assert (new["state"], new["restarts"]) == ("resident", old["restarts"] + 1)
    assert new["process_id"] != old["process_id"]


def test_a_stopped_process_is_seen_at_once_and_goes_on_when_it_may(tiny: RunningServer) -> None:
    with (
        tiny.http as http,
        listening(http, "go on", model="two", max_output_tokens=90_000, temperature=0) as turn,
    ):
        turn.until("output_text.delta")
        seen = model(http, "two")
        os.kill(seen["process_id"], signal.SIGSTOP)
        try:
            until(lambda: http.get("/health/ready").status_code == 503)
            problems = http.get("/health/ready").json()["problems"]
        finally:
            os.kill(seen["process_id"], signal.SIGCONT)
        until(lambda: http.get("/health/ready").status_code == 200)
        told = len(turn.told)
        turn.until("output_text.delta")
        next(iter(turn))

    assert "the engine of model two failed: The engine process has not responded" in problems[0]
    assert len(turn.told) > told
    with tiny.http as http:
        assert model(http, "two")["restarts"] == seen["restarts"]


def test_a_process_that_holds_more_than_the_budget_is_ended_as_a_crash(tmp_path: Path) -> None:
    """The budget counts what the processes say they hold; an interpreter with MLX is more than this one."""
    folder = make_tiny_model(tmp_path / "tiny")
    with (
        serving(tmp_path / "turnlog.db", f"--model=tiny={folder}", TURNLOG_MEMORY_BYTES="60000000") as server,
        server.http as http,
    ):
        http.post("/v1/models/load", json={"name": "tiny"})
        crash = until(lambda: model(http, "tiny")["last_crash"])

    assert "more than the memory budget" in crash["reason"]


def test_the_server_itself_has_no_mlx_in_memory(tiny: RunningServer) -> None:
    """Neither by its own imports, which a contract forbids, nor by those of a library."""
    mapped = Path(f"/proc/{tiny.process.pid}/maps").read_text()

    assert not [name for name in ("/mlx/", "libmlx", "/tokenizers/", "/llguidance/") if name in mapped]


def test_no_process_outlives_its_server(tmp_path: Path) -> None:
    """Killed by -9, with a turn under way and one of the processes stopped."""
    folder = make_tiny_model(tmp_path / "tiny", context_window_tokens=100_000)
    with (
        serving(tmp_path / "turnlog.db", f"--model=tiny={folder}") as server,
        server.http as http,
        listening(http, "go on", model="tiny", max_output_tokens=90_000, temperature=0) as turn,
    ):
        turn.until("output_text.delta")
        children = children_of(server.process.pid)
        held = [descriptors(child) for child in children]
        os.kill(children[0], signal.SIGSTOP)
        kill(server)
        until(lambda: not any(is_running(child) for child in children))

    assert len(children) == 2
    # Nothing but its end of the pair, the pipe of its error stream and the null device.
    for kinds in held:
        assert kinds <= {"socket", "pipe", "/dev/null"}


def children_of(pid: int) -> list[int]:
    """The processes that a process has made."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdecimal() and _parent(folder) == pid
    ]


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descriptors(pid: int) -> set[str]:
    """What a process has open, by kind or path."""
    return {str(each.readlink()).partition(":")[0] for each in Path(f"/proc/{pid}/fd").iterdir()}

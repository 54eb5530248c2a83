"""The model floor from outside: real servers of several models, and more clients than there is room for."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.eventstore.locker import locked_by_another_process
from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import Json, refused
from tests.app.scripts import STOP, entry
from tests.serving import LONG_S, RunningServer, serving, turnlog
from tests.waiting import until

Post = Callable[..., "Future[httpx.Response]"]


def saying(answer: str, **keys: Any) -> Json:
    """A model that answers so, one turn at a time, unless it is told to hang."""
    turns = [entry("hang", {"text": "Hel"}, {"hang": True}), {"steps": [{"text": answer}, STOP]}]
    return {"concurrency": 1, "turns": turns} | keys


def served(
    folder: Path, models: dict[str, Json], *options: str, **environ: str
) -> AbstractContextManager[RunningServer]:
    """A server of these scripts."""
    declared = []
    for name, script in models.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(script))
        declared += ["--model", f"{name}={path}"]
    return serving(folder / "turnlog.db", "--engine", "scripted", *declared, *options, **environ)


@contextmanager
def posting(server: RunningServer) -> Iterator[Post]:
    """Posts turns beside each other, each by a client of its own."""
    with ThreadPoolExecutor(32) as threads:

        def post(model: str, text: str = "hi", **fields: Any) -> "Future[httpx.Response]":
            return threads.submit(send, {"model": model, "input": text} | fields)

        def send(body: Json) -> httpx.Response:
            with server.http as http:
                return http.post("/v1/responses", json=body)

        yield post


@contextmanager
def hanging(server: RunningServer, model: str = "alpha") -> Iterator[str]:
    """A client whose turn runs until it leaves; the turn's id."""
    body = {"model": model, "input": "hang", "stream": True}
    with server.http as http, http.stream("POST", "/v1/responses", json=body) as answer:
        lines = answer.iter_lines()  # kept: the connection ends with it
        for line in lines:
            if line.startswith("data: ") and '"response.created"' in line:
                response_id = json.loads(line.removeprefix("data: "))["response"]["id"]
            if '"response.output_text.delta"' in line:
                break
        yield response_id


def model(server: RunningServer, name: str) -> Json:
    """What the operator sees of a model."""
    with server.http as http:
        shown: Json = http.get(f"/v1/models/{name}").json()
    return shown


def operate(server: RunningServer, action: str, **fields: str) -> Json:
    """Have an operator load, unload or swap."""
    with server.http as http:
        answer = http.post(f"/v1/models/{action}", json=fields)
    assert answer.status_code == 200, answer.text
    shown: Json = answer.json()
    return shown


def waits(server: RunningServer, name: str, count: int) -> bool:
    """Whether so many requests wait for the model."""
    return bool(model(server, name)["queued_turns"] == count)


def test_whoever_finds_the_queue_full_is_told_when_to_come_back(tmp_path: Path) -> None:
    """R-031, R-036, D-38, G-008: while the turn still runs; those who wait are answered when it is over."""
    with (
        served(tmp_path, {"alpha": saying("here")}, TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL="2") as server,
        posting(server) as post,
    ):
        with hanging(server):
            waiting = [post("alpha") for _ in range(2)]
            until(lambda: waits(server, "alpha", 2))

            answer = post("alpha").result()

            error = refused(answer, 429)
            assert not any(each.done() for each in waiting)
            # Two wait and none has ended yet, so it is a guess: ten seconds, more or less.
            after_s = int(answer.headers["retry-after"])
            assert 8 <= after_s <= 12
            assert error["message"].startswith("Model queue full: ")
            assert error["message"].endswith(f"Retry after {after_s}s.")
            assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "queue_full", None)

        assert [each.result().json()["output_text"] for each in waiting] == ["here", "here"]


async def test_a_hundred_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    """T2-20, D-38: sixteen run, the others wait in line; nobody is refused."""
    script = {"concurrency": 16, "turns": [{"steps": [{"text": "Hel"}, {"sleep_ms": 100}, STOP]}]}
    with served(tmp_path, {"alpha": script}) as server:
        async with httpx.AsyncClient(base_url=server.address, timeout=LONG_S, limits=httpx.Limits()) as http:
            body = {"model": "alpha", "input": "hi"}
            answers = await asyncio.gather(*[http.post("/v1/responses", json=body) for _ in range(100)])

    assert Counter(answer.status_code for answer in answers) == {200: 100}


def test_a_cold_model_is_loaded_once_for_many_clients(tmp_path: Path) -> None:
    """R-032, R-042, R-045, G-011, G-024: as many are answered as may wait."""
    models = {"alpha": saying("here", load_ms=1000)}
    with served(tmp_path, models, TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL="7") as server, posting(server) as post:
        waiting = [post("alpha") for _ in range(8)]
        until(lambda: waits(server, "alpha", 8) or model(server, "alpha")["state"] == "resident")
        answers = [each.result() for each in waiting]

        assert [answer.json()["output_text"] for answer in answers] == ["here"] * 8
        shown = model(server, "alpha")
        assert (shown["state"], shown["instance_id"], shown["queued_turns"]) == ("resident", 1, 0)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_turn_whose_model_is_swapped_while_it_is_queued_fails(streamed: bool, tmp_path: Path) -> None:
    """R-139, D-05, D-26, D-32, G-033, G-034: the running one goes on; the name means the new model."""
    models = {"alpha": saying("old"), "beta": saying("new")}
    with served(tmp_path, models) as server, posting(server) as post:
        with hanging(server) as running_id, server.http as http:
            queued = post("alpha", stream=streamed)
            until(lambda: waits(server, "alpha", 1))

            assert operate(server, "swap", name="alpha", to="beta")["instance_id"] == 2
            assert post("alpha").result().json()["output_text"] == "new"
            assert http.get(f"/v1/responses/{running_id}").json()["status"] == "in_progress"
            assert not queued.done()

        answer = queued.result()
        if streamed:
            *_, error, failed = read_stream(answer.content)
            assert (error["type"], error["error"]["code"]) == ("error", "model_changed")
            assert failed["response"]["error"]["code"] == "model_changed"
            response_id = failed["response"]["id"]
        else:
            told = refused(answer, 400)
            assert (told["code"], told["param"]) == ("model_changed", "model")
            assert "binding changed" in told["message"]
            response_id = answer.headers["x-response-id"]
        with server.http as http:
            stored = http.get(f"/v1/responses/{response_id}").json()
        assert (stored["status"], stored["error"]["code"]) == ("failed", "model_changed")


def test_a_swap_while_a_chain_is_looked_up_refuses_the_continuation(tmp_path: Path) -> None:
    """R-138, R-140, G-021, G-032: before anything is begun on either model."""
    models = {"alpha": saying("old"), "beta": saying("new")}
    limits = {"MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS": "60000"}
    with served(tmp_path, models, **limits) as server, posting(server) as post:
        assert post("alpha").result().status_code == 200
        with locked_by_another_process(server.database):
            first = post("alpha").result().json()
            continuation = post("alpha", previous_response_id=first["id"])
            until(lambda: waits(server, "alpha", 1))

            operate(server, "swap", name="alpha", to="beta")
            assert not continuation.done()

        error = refused(continuation.result(), 400)
        assert (error["code"], error["param"]) == ("binding_changed", "model")
        assert (model(server, "alpha")["queued_turns"], model(server, "alpha")["instance_id"]) == (0, 2)


def test_a_model_that_is_unloaded_during_a_turn_goes_when_the_turn_has_ended(tmp_path: Path) -> None:
    """R-065, R-066, G-031: whoever asks meanwhile waits behind the turn, on the same model object."""
    with served(tmp_path, {"alpha": saying("here")}) as server, posting(server) as post:
        with hanging(server) as running_id:
            assert operate(server, "unload", name="alpha")["state"] == "declared"
            with server.http as http:
                assert http.get(f"/v1/responses/{running_id}").json()["status"] == "in_progress"
            late = post("alpha")
            until(lambda: waits(server, "alpha", 1))

        assert late.result().json()["output_text"] == "here"
        assert model(server, "alpha")["instance_id"] == 1
        assert operate(server, "unload", name="alpha")["state"] == "declared"
        assert post("alpha").result().json()["output_text"] == "here"
        assert model(server, "alpha")["instance_id"] == 2


def test_a_model_that_was_not_declared_is_not_found_and_loads_nothing(tmp_path: Path) -> None:
    """R-058: by a turn, and by an operator's calls."""
    with served(tmp_path, {"alpha": saying("here")}) as server, server.http as http:
        error = refused(http.post("/v1/responses", json={"model": "beta", "input": "hi"}), 404)
        operators = [
            refused(http.post(f"/v1/models/{action}", json=body), 404)
            for action, body in [
                ("load", {"name": "beta"}),
                ("unload", {"name": "beta"}),
                ("swap", {"name": "alpha", "to": "beta"}),
            ]
        ]

        assert error == {
            "type": "not_found_error",
            "code": "model_not_found",
            "param": "model",
            "message": "The model 'beta' does not exist. Served models: alpha",
        }
        assert [each["message"] for each in operators] == [error["message"]] * 3
        assert model(server, "alpha")["state"] == "declared"


def test_a_client_that_leaves_the_queue_makes_room_for_the_next(tmp_path: Path) -> None:
    """D-26, R-374, G-152: at once, while the turn before it still runs."""
    with (
        served(tmp_path, {"alpha": saying("here")}, TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL="1") as server,
        posting(server) as post,
    ):
        with hanging(server):
            body = {"model": "alpha", "input": "hi", "stream": True}
            with server.http as http, http.stream("POST", "/v1/responses", json=body) as left:
                lines = left.iter_lines()  # kept: the connection ends with it
                next(lines)
                until(lambda: waits(server, "alpha", 1))
                assert post("alpha").result().status_code == 429
            until(lambda: waits(server, "alpha", 0))
            late = post("alpha")
            until(lambda: waits(server, "alpha", 1))

        assert late.result().json()["output_text"] == "here"


def test_a_request_that_is_wrong_is_refused_before_any_model_is_loaded(tmp_path: Path) -> None:
    """G-006, R-011: its model would take a minute to load."""
    script = saying("here", load_ms=60_000)
    with served(tmp_path, {"alpha": script}) as server, server.http as http:
        answer = http.post("/v1/responses", json={"model": "alpha", "input": "hi", "temperature": "hot"})

        assert refused(answer, 400)["param"] == "temperature"
        assert model(server, "alpha")["state"] == "declared"


def test_a_default_answers_for_names_that_are_not_served(tmp_path: Path) -> None:
    """R-059: under its true name; its chain goes on, and no such model is listed."""
    models = {"alpha": saying("here"), "beta": saying("there")}
    with served(tmp_path, models, "--default", "beta") as server, server.http as http:
        first = http.post("/v1/responses", json={"model": "gpt-5", "input": "hi"}).json()
        own = http.post("/v1/responses", json={"model": "alpha", "input": "hi"}).json()
        body = {"model": "gpt-5", "input": "hi", "previous_response_id": first["id"]}
        second = http.post("/v1/responses", json=body).json()
        listed = [each["id"] for each in http.get("/v1/models").json()["data"]]
        asked_for = http.get("/v1/models/gpt-5").status_code

    assert [(each["model"], each["output_text"]) for each in (first, own, second)] == [
        ("beta", "there"),
        ("alpha", "here"),
        ("beta", "there"),
    ]
    assert (listed, asked_for) == (["alpha", "beta"], 404)


def test_a_default_that_is_not_declared_is_refused_at_the_start(tmp_path: Path) -> None:
    """R-059."""
    script = tmp_path / "alpha.json"
    script.write_text(json.dumps(saying("here")))
    declared = (
        "--engine",
        "scripted",
        "--model",
        f"alpha={script}",
        "--port",
        "0",
        "--db",
        str(tmp_path / "x.db"),
    )

    done = turnlog("serve", *declared, "--default", "beta")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--default is 'beta'. Declared models: alpha" in done.stderr


def test_the_limit_and_what_is_admitted_are_shown(tmp_path: Path) -> None:
    """R-041: to operators."""
    script = saying("here", load_ms=60_000)
    with (
        served(tmp_path, {"alpha": script}, TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL="3") as server,
        posting(server) as post,
        server.http as http,
    ):
        waiting = [post("alpha") for _ in range(2)]
        until(lambda: waits(server, "alpha", 2))

        shown = model(server, "alpha")
        metrics = http.get("/metrics").text
        table = turnlog("models", "--db", str(server.database)).stdout
        server.process.kill()
        for each in waiting:
            each.exception()

    assert (shown["queue_limit"], shown["permits"], shown["queued_turns"]) == (3, 2, 2)
    assert 'turnlog_queue_limit{model="alpha"} 3.0' in metrics
    assert 'turnlog_permits{model="alpha"} 2.0' in metrics
    assert "2/3" in table


def test_load_records_can_be_read(tmp_path: Path) -> None:
    """R-055: by operators, over HTTP and by a command; failures too."""
    models = {"alpha": saying("here"), "beta": saying("there")}
    with served(tmp_path, models) as server, server.http as http:
        assert http.post("/v1/responses", json={"model": "alpha", "input": "hi"}).status_code == 200
        (tmp_path / "beta.json").write_text("{")
        assert http.post("/v1/models/load", json={"name": "beta"}).status_code == 500
        shown = [load for name in models for load in model(server, name)["loads"]]
        lines = turnlog("models", "loads", "--json", "--db", str(server.database)).stdout.splitlines()
        table = turnlog("models", "loads", "--db", str(server.database)).stdout

    assert [(load["label"], load["model"], load["error"] is None) for load in shown] == [
        ("responses", "alpha", True),
        ("operator", "beta", False),
    ]
    assert [json.loads(line) for line in lines] == shown
    began, _, beta = (line.split() for line in table.splitlines()[:3])
    assert (began[:4], beta[2:4]) == (["started", "model", "cause", "duration"], ["beta", "operator"])

"""What only a whole server shows: the rules that reach from the API through planning to a real model."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.openai.wire import check_response
from tests.app.http.sockets import opened
from tests.serving import RunningServer, serving, turnlog
from tests.tiny_model import AGENT_TEMPLATE, make_tiny_model

Json = dict[str, Any]

GENERATION = {
    "temperature": 0.25,
    "top_p": 0.5,
    "top_k": 3,
    "repetition_penalty": 1.5,
    "max_new_tokens": 7,
    "min_p": "much",
    "do_sample": True,
}
OWN = {"temperature": 0.25, "top_p": 0.5, "top_k": 3, "repetition_penalty": 1.5, "max_output_tokens": 7}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A model under two names, one of which has defaults of its own."""
    folder = make_tiny_model(
        tmp_path_factory.mktemp("models") / "tiny", AGENT_TEMPLATE, context_window_tokens=4096
    )
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    declared = [f"--model=tiny={folder}", f"--model=calm={folder}"]
    defaults = ["--sampling=calm.temperature=0", "--sampling=calm.top_k=0"]
    database = tmp_path_factory.mktemp("log") / "turnlog.db"
    with serving(database, *declared, *defaults) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with server.http as client:
        yield client


def post(http: httpx.Client, **fields: Any) -> Json:
    body = {"model": "tiny", "input": "Where?", "max_output_tokens": 200, "seed": 7} | fields
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def tool(name: str) -> Json:
    word = {"type": "object", "properties": {"word": {"enum": ["a", "b"]}}, "required": ["word"]}
    return {"type": "function", "name": name, "parameters": word, "strict": True, "description": None}


TOOLS = [tool("find"), tool("lose")]


def calls(response: Json) -> list[Json]:
    return [item for item in response["output"] if item["type"] == "function_call"]


def test_without_tool_choice_the_tools_are_not_in_the_prompt(http: httpx.Client) -> None:
    """R-174: a model that must not call does not hear of tools."""
    bare, hidden, shown = (
        post(http, max_output_tokens=1, **fields)["usage"]["input_tokens"]
        for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS})
    )

    assert bare == hidden < shown


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"find", "lose"}), ({"type": "function", "name": "lose"}, {"lose"})],
)
def test_a_call_that_is_asked_for_is_made(http: httpx.Client, choice: Json | str, names: set[str]) -> None:
    """R-174, D-08: by a model that would never call by itself."""
    [call] = calls(post(http, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False))

    assert call["name"] in names
    assert json.loads(call["arguments"])["word"] in ("a", "b")


def test_an_answer_has_the_format_that_is_asked_for(http: httpx.Client) -> None:
    """D-08, F1: by a model that would never write JSON by itself."""
    point = {
        "type": "object",
        "properties": {"x": {"enum": [1, 2]}, "y": {"const": "é"}},
        "required": ["x", "y"],
        "additionalProperties": False,
    }
    answer = post(http, text={"format": {"type": "json_schema", "name": "point", "schema": point}})

    assert json.loads(answer["output_text"]) in ({"x": 1, "y": "é"}, {"x": 2, "y": "é"})


def test_a_chat_has_the_format_and_makes_the_calls_that_it_is_asked_for(http: httpx.Client) -> None:
    """D-08, F1: by a model that would never do so by itself."""
    schema = {
        "type": "object",
        "properties": {"x": {"enum": [1, 2]}},
        "required": ["x"],
        "additionalProperties": False,
    }
    messages = [{"role": "user", "content": "Where?"}]
    asked = {"model": "tiny", "messages": messages, "max_tokens": 200, "seed": 7}
    find = {"type": "function", "function": {"name": "find", "parameters": TOOLS[0]["parameters"]}}
    named = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    wrong = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"type": "nonsense"}}}

    formed, called, refused = (
        http.post("/v1/chat/completions", json=asked | more)
        for more in (
            {"response_format": named},
            {"tools": [find], "tool_choice": "required", "parallel_tool_calls": False},
            {"response_format": wrong},
        )
    )

    content = formed.json()["choices"][0]["message"]["content"]
    assert json.loads(content) in ({"x": 1}, {"x": 2})
    (choice,) = called.json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], call["function"]["name"]) == ("tool_calls", "find")
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["code"]) == ("response_format", "invalid_schema")


def echoed(response: Json) -> Json:
    return {name: response[name] for name in OWN if name in response}


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (
            {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}}, "required": ["a"]},
            "requires itself",
        ),
        ({"type": "string", "pattern": "^(([a-z]{1,99}){1,99}){1,99}$"}, "cannot be followed"),
        ({"const": -(2**63)}, "an integer below"),
        ({"properties": 1}, "Unsupported schema|not supported"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_by_its_field(
    http: httpx.Client, schema: Json, complaint: str
) -> None:
    """It ends neither in a 5xx nor the process that compiles it."""
    form = {"type": "json_schema", "name": "form", "schema": {"type": "object", "properties": {"b": schema}}}
    called = tool("look") | {"parameters": {"type": "object", "properties": {"b": schema}}}

    for fields, param in (
        ({"text": {"format": form}}, "text.format"),
        ({"tools": [called], "tool_choice": "required"}, "tools"),
    ):
        answer = http.post("/v1/responses", json={"model": "tiny", "input": "Where?"} | fields)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_schema", param), error
        assert re.search(complaint, error["message"])


def test_the_defaults_of_the_model_hold_when_a_request_is_silent(http: httpx.Client) -> None:
    """R-103, R-177: they are told, they are in the log, and they are what the turn ran with."""
    silent = post(http, max_output_tokens=None)
    events = http.get(f"/v1/responses/{silent['id']}/events").json()["data"]
    again = http.post(f"/v1/responses/{silent['id']}/replay", json={}).json()
    created, started = events[0]["data"], events[1]["data"]

    assert echoed(check_response(silent)) == echoed(again) == OWN
    assert created["sampling"] | {"max_output_tokens": created["max_output_tokens"]} == OWN | {"seed": 7}
    assert (started["output_budget_tokens"], silent["usage"]["output_tokens"]) == (7, 7)


def test_a_request_overrides_the_defaults_field_by_field(http: httpx.Client) -> None:
    """R-177: also by the value that would hold without a default."""
    asked = {"temperature": 1.0, "top_k": 0, "max_output_tokens": 9}

    told = echoed(post(http, **asked))

    assert told == {"temperature": 1.0, "top_p": 0.5, "repetition_penalty": 1.5, "max_output_tokens": 9}


def test_what_is_set_for_a_name_goes_before_what_the_model_says(http: httpx.Client) -> None:
    """R-177: two names of one model may differ."""
    calm = OWN | {"temperature": 0.0}
    del calm["top_k"]

    assert echoed(post(http, model="calm", max_output_tokens=None)) == calm


def test_the_defaults_are_listed_for_each_name(http: httpx.Client, server: RunningServer) -> None:
    """R-177."""
    listed = {model["id"]: model["defaults"] for model in http.get("/v1/models").json()["data"]}
    table = turnlog("models", "--db", str(server.database), COLUMNS="300").stdout

    assert listed == {"tiny": OWN, "calm": OWN | {"temperature": 0.0, "top_k": 0}}
    assert "temperature 0.25, top_p 0.5, top_k 3" in table


def test_a_default_for_a_model_that_is_not_served_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "tiny")
    options = ["--model", f"tiny={folder}", "--sampling", "tyni.top_p=0.5"]

    ended = turnlog("serve", "--port", "0", "--db", str(tmp_path / "turnlog.db"), *options)

    assert ended.returncode == 2
    assert "--sampling names the unknown model 'tyni'. Declared models: tiny" in ended.stderr


def test_a_real_model_is_steered_and_reads_ahead(server: RunningServer) -> None:
    """D-40: the engine ends at its next token, and what was read is not read again."""
    with opened(server) as socket:
        warm = socket.turn(model="tiny", generate=False, input="Where? " * 40)[-1]["response"]
        socket.send(
            model="tiny", input="And?", previous_response_id=warm["id"], max_output_tokens=2_000, seed=7
        )
        told = socket.until("response.output_text.delta")
        first = told[0]["response"]["id"]
        socket.send("response.steer", previous_response_id=first, input="Stop.")
        cut = socket.until("response.incomplete")[-1]["response"]
        then = socket.until("response.completed", "response.incomplete")

    assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
    assert cut["usage"]["input_tokens_details"]["cached_tokens"] > 100
    assert cut["incomplete_details"] == {"reason": "steered"}
    assert 0 < cut["usage"]["output_tokens"] < 2_000
    assert then[0]["response"]["previous_response_id"] == first
    assert then[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] > 100


def test_a_prompt_that_cannot_fit_is_refused_from_its_length(http: httpx.Client) -> None:
    """T2-05: 9 MB of digits would take minutes to encode."""
    error = http.post("/v1/responses", json={"model": "tiny", "input": "7" * 9_000_000}).json()["error"]

    assert error["code"] == "context_length_exceeded"
    assert "the prompt has at least 9000" in error["message"]


def test_a_history_that_is_cut_to_fit_is_not_encoded_before(http: httpx.Client) -> None:
    """T2-05, T2-06."""
    said = [{"role": "user", "content": "7" * 1_000_000}, {"role": "user", "content": "Where?"}]

    cut = post(http, input=said, truncation="auto", max_output_tokens=5)

    assert cut["usage"]["input_tokens"] < 100

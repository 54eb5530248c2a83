"""How real clients broke on other servers, a test for each report (docs/spec/field-reports.md)."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.adapters.openai.wire import check_response, read_stream
from tests.app.http.test_turns import Json, create, refused, stream
from tests.serving import RunningServer, serving

F: Json = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}
NAMESPACE: Json = {
    "type": "namespace",
    "name": "mcp__fs",
    "tools": [{"type": "function", "name": "read", "parameters": {}}],
}
PATCH: Json = {
    "type": "custom",
    "name": "apply_patch",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"},
}
DIRECT: Json = PATCH | {"name": "patch", "allowed_callers": ["direct"]}
USER: Json = {"role": "user", "content": "a"}
ASSISTANT: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]}
CALL: Json = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "c1", "output": "3"}
PNG = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
ENCRYPTED: Json = {"type": "reasoning", "id": "rs_gone", "encrypted_content": "x"}
DEVELOPER: Json = {"role": "developer", "content": "d"}

ACCEPTED: dict[str, Json] = {
    # A. Tools the server does not know.
    "A1": {"input": "hi", "tools": [F, {"type": "web_search"}]},
    "A2": {"input": "hi", "tools": [NAMESPACE]},
    "A3": {"input": "hi", "tools": [F, {"type": "web_search"}], "stream": True},
    "A4": {"input": "hi", "tools": [F] * 8 + [NAMESPACE]},
    "A5": {"input": "hi", "tools": [F] * 14 + [{"type": "image_generation"}]},
    "A6": {"input": "hi", "tools": [F, {"type": "custom", "name": "apply_patch"}]},
    "A7": {"input": "hi", "tools": [{"type": "web_search"}]},
    # B. Input items in shapes the server did not expect.
    "B1": {"input": [USER, ASSISTANT, {"role": "user", "content": "c"}]},
    "B2": {"input": [USER, ASSISTANT, USER, CALL, OUTPUT]},
    "B4": {"input": [USER, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}, USER]},
    "B5": {"input": [USER, {"type": "reasoning", "id": "rs_1", "summary": []}, USER]},
    "B6": {"input": [USER, {"role": "assistant", "content": "x"}, USER]},
    "B9": {"input": [USER, CALL, OUTPUT | {"output": [{"type": "input_text", "text": "x"}, PNG]}]},
    "B10": {"input": [USER, CALL, OUTPUT | {"output": [PNG]}]},
    "B15": {"input": "hi", "text": {"verbosity": "low"}},
    "B19": {"input": [USER | {"id": "msg_gone"}, ASSISTANT | {"id": "msg_gone"}, USER], "store": False},
    "B20": {"input": [USER, ENCRYPTED, USER], "store": False},
    "B21": {"input": [DEVELOPER, USER]},
    "B22": {"input": [DEVELOPER, USER, DEVELOPER], "instructions": "i"},
    "B23": {"input": [DEVELOPER, USER]},
    "B24": {"input": [DEVELOPER, USER], "instructions": "i", "stream": True},
    "B25": {"input": [USER, DEVELOPER], "instructions": "i"},
    # G. Discovery, transport, headers.
    "G6": {"input": "hi"},
    "G7": {
        "client_metadata": {"x": "y"},
        "include": ["reasoning.encrypted_content"],
        "input": [USER],
        "instructions": "i",
        "parallel_tool_calls": False,
        "prompt_cache_key": "thread",
        "reasoning": {"effort": "high", "summary": "auto"},
        "store": False,
        "stream": True,
        "tool_choice": "auto",
        "tools": [F, NAMESPACE, {"type": "web_search"}],
    },
}


@pytest.mark.parametrize("report", ACCEPTED)
def test_a_request_that_others_refused_is_answered(http: httpx.Client, report: str) -> None:
    body = {"model": "scripted"} | ACCEPTED[report]

    answer = http.post("/v1/responses", json=body)

    assert answer.status_code == 200, answer.text
    if body.get("stream"):
        assert answer.content.endswith(b"data: [DONE]\n\n")
        assert b"event: response.completed\n" in answer.content
    else:
        assert answer.json()["output_text"] == "Hello"


REFUSED: dict[str, tuple[Json, str]] = {
    "A9": ({"input": "", "max_output_tokens": 1}, "input"),
    "B14 string": ({"input": ""}, "input"),
    "B14 list": ({"input": []}, "input"),
    "B14 blank": ({"input": "   "}, "input"),
    "D11": ({"input": "hi", "max_output_tokens": 0}, "max_output_tokens"),
}


@pytest.mark.parametrize("report", REFUSED)
@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_broke_others_is_refused_by_the_field(
    http: httpx.Client, report: str, *, streams: bool
) -> None:
    fields, param = REFUSED[report]

    answer = http.post("/v1/responses", json={"model": "scripted", "stream": streams} | fields)

    assert refused(answer, 400)["param"] == param


def leading_system(http: httpx.Client, **fields: Any) -> int:
    """Tokens the engine read: a marker and the words of each message, and the answer's marker."""
    usage: Json = create(http, fields.pop("input"), **fields)["usage"]
    return int(usage["input_tokens"])


@pytest.mark.parametrize("report", ["B21", "B22", "B23", "B24", "B25"])
def test_all_system_texts_are_one_leading_message(http: httpx.Client, report: str) -> None:
    """D-09."""
    fields = {name: value for name, value in ACCEPTED[report].items() if name != "stream"}
    system_words = len([item for item in fields["input"] if item is DEVELOPER]) + ("instructions" in fields)

    assert leading_system(http, **fields) == (1 + system_words) + 2 + 1


@pytest.mark.parametrize(
    ("report", "text", "tools", "expected"),
    [
        ("A10", "call patch", [PATCH | {"name": "patch"}], ("custom_tool_call", "patch", None)),
        ("A11", "call patch", [PATCH | {"name": "patch"}], ("custom_tool_call", "patch", None)),
        ("A12", "call patch", [DIRECT], ("custom_tool_call", "patch", None)),
        ("A13", "call bare", [NAMESPACE], ("function_call", "read", "mcp__fs")),
        ("C16", "think and call", [F], ("function_call", "add", None)),
    ],
)
def test_a_call_comes_back_as_the_client_knows_it(
    http: httpx.Client, report: str, text: str, tools: list[Json], expected: tuple[str, str, str | None]
) -> None:
    item = create(http, text, tools=tools)["output"][-1]

    assert (item["type"], item["name"], item.get("namespace")) == expected, report


def test_b26_an_image_for_a_text_model_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """B26: with a model that reads text only."""
    from tests.tiny_model import make_tiny_model

    folder = tmp_path_factory.mktemp("text-only")
    model = make_tiny_model(folder / "tiny")
    with serving(folder / "turnlog.db", "--model", f"tiny={model}") as server, server.http as http:
        items = [{"role": "user", "content": [{"type": "input_text", "text": "see"}, PNG]}]
        error = refused(http.post("/v1/responses", json={"model": "tiny", "input": items}), 400)
        in_output = {
            "model": "tiny",
            "input": [USER, CALL, OUTPUT | {"output": [PNG]}],
            "max_output_tokens": 1,
        }
        assert http.post("/v1/responses", json=in_output).status_code == 200

    assert (error["param"], error["code"]) == ("input", "unsupported_image")


REQUIRED: dict[str, str] = {
    "response.output_item.added": "output_index item",
    "response.output_item.done": "output_index item",
    "response.content_part.added": "item_id output_index content_index part",
    "response.content_part.done": "item_id output_index content_index part",
    "response.output_text.delta": "item_id output_index content_index delta logprobs",
    "response.output_text.done": "item_id output_index content_index text logprobs",
    "response.reasoning_summary_text.delta": "item_id output_index summary_index delta",
    "response.reasoning_summary_text.done": "item_id output_index summary_index text",
    "response.reasoning_summary_part.added": "item_id output_index summary_index part",
    "response.reasoning_summary_part.done": "item_id output_index summary_index part",
    "response.function_call_arguments.delta": "item_id output_index delta",
    "response.function_call_arguments.done": "item_id output_index arguments",
    "response.created": "response",
    "response.in_progress": "response",
    "response.completed": "response",
}


@pytest.mark.parametrize("text", ["hi", "think", "call one", "think and call", "call two"])
@pytest.mark.parametrize("report", ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C11", "C12", "C23"])
def test_every_event_has_every_field(http: httpx.Client, report: str, text: str) -> None:
    """`read_stream` checks type, numbers and schema (C7, C8, C11)."""
    events = read_stream(stream(http, text, tools=[F]))

    for event in events:
        assert event.keys() >= set(REQUIRED[event["type"]].split()), report
        if "response" in event:
            check_response(event["response"])
        if "item" in event:
            assert event["item"]["id"], report


def told(events: list[Json]) -> list[str]:
    """The types of a stream's events, without their common prefix."""
    return [event["type"].removeprefix("response.") for event in events]


def test_c13_a_text_is_told_in_full(http: httpx.Client) -> None:
    assert told(read_stream(stream(http, "hi"))) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


@pytest.mark.parametrize("report", ["C14", "C15", "C16", "C19", "C25"])
def test_calls_are_streamed_whole_and_no_markup_leaks(http: httpx.Client, report: str) -> None:
    events = read_stream(stream(http, "think and call", tools=[F]))

    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    arguments = [event["arguments"] for event in events if event["type"].endswith("arguments.done")]
    assert "tool_call>" not in json.dumps(events), report
    assert done == events[-1]["response"]["output"]
    assert [item["type"] for item in done] == ["reasoning", "function_call"]
    assert arguments == [done[-1]["arguments"]] == ['{"a":1}']


def test_c18_a_call_that_was_none_is_still_text(http: httpx.Client) -> None:
    assert create(http, "lost", tools=[F])["output_text"] == "<tool_call>{oops"


@pytest.mark.parametrize("report", ["C19", "C20", "C21"])
def test_ids_and_output_are_the_same_everywhere(http: httpx.Client, report: str) -> None:
    events = read_stream(stream(http, "think"))
    final = events[-1]["response"]

    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert {event["response"]["id"] for event in events if "response" in event} == {final["id"]}, report
    assert done == final["output"]
    read = http.get(f"/v1/responses/{final['id']}").json()
    assert read == {**final, "expires_at": read["expires_at"]}
    assert create(http, "hi", previous_response_id=final["id"])["previous_response_id"] == final["id"]


def test_c22_parallel_calls_stay_apart(http: httpx.Client) -> None:
    events = read_stream(stream(http, "call two", tools=[F]))

    deltas = [
        (event["output_index"], event["delta"])
        for event in events
        if event["type"].endswith("arguments.delta")
    ]
    assert deltas == [(0, '{"a":1}'), (1, '{"a":2}')]


def test_c24_reasoning_is_told_as_summary_deltas(http: httpx.Client) -> None:
    types = told(read_stream(stream(http, "think", reasoning={"effort": "high"})))

    assert types[2:7] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]


@pytest.mark.parametrize("text", ["hi", "think", "call one", "cut", "boom", "exhaust", "lost"])
def test_d1_there_is_always_exactly_one_terminal_event(http: httpx.Client, text: str) -> None:
    """R-316."""
    terminals = {"response.completed", "response.incomplete", "response.failed"}
    events = read_stream(stream(http, text, tools=[F]))

    assert [event["type"] in terminals for event in events] == [False] * (len(events) - 1) + [True]


def test_d2_too_much_context_is_said_before_the_stream(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": "word " * 250, "stream": True}

    assert refused(http.post("/v1/responses", json=body), 400)["code"] == "context_length_exceeded"


@pytest.mark.parametrize("report", ["D3", "D4"])
def test_a_failure_is_an_error_and_a_failed_response_and_then_the_end(
    http: httpx.Client, report: str
) -> None:
    events = read_stream(stream(http, "boom"))

    assert told(events)[-2:] == ["error", "failed"], report
    assert events[-2]["error"]["code"] == events[-2]["code"] == "server_error"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "it broke"}


@pytest.mark.parametrize("report", ["D10", "D11", "D12", "D13"])
def test_a_turn_cut_by_its_limit_says_so_everywhere(http: httpx.Client, report: str) -> None:
    events = read_stream(stream(http, "cut"))

    final = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete", report
    details = {"reason": "max_output_tokens", "limit": "context_window"}
    assert (final["status"], final["incomplete_details"]) == ("incomplete", details)
    assert final["output"][-1]["status"] == "incomplete"


def posted(content: bytes) -> Callable[[httpx.Client], httpx.Response]:
    """A body as it is, declared as JSON."""
    headers = {"content-type": "application/json"}
    return lambda http: http.post("/v1/responses", content=content, headers=headers)


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        (lambda http: http.post("/v1/responses", json={"model": "scripted", "input": 7}), 400),
        (posted(b"{"), 400),
        (lambda http: http.get("/v1/nothing"), 404),
        (lambda http: http.put("/v1/responses"), 405),
        (posted(b"x" * 11_000_000), 413),
        (lambda http: http.post("/v1/responses", content=b"{}"), 415),
    ],
)
def test_d16_every_error_has_the_same_envelope(
    http: httpx.Client, ask: Callable[[httpx.Client], httpx.Response], status: int
) -> None:
    assert refused(ask(http), status)["message"]


@pytest.mark.parametrize("report", ["E1", "E2", "E4"])
def test_a_streamed_response_can_be_continued_at_once(http: httpx.Client, report: str) -> None:
    first = read_stream(stream(http, "one two"))[-1]["response"]
    second = create(http, "hi", previous_response_id=first["id"])

    assert (second["object"], second["status"]) == ("response", "completed"), report
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    read = http.get(f"/v1/responses/{first['id']}").json()
    assert read == {**first, "expires_at": read["expires_at"]}


def test_e5_an_id_that_was_not_stored_is_not_found(http: httpx.Client) -> None:
    first = create(http, "hi", store=False)
    body = {"model": "scripted", "input": "hi", "previous_response_id": first["id"]}

    assert refused(http.post("/v1/responses", json=body), 404)["code"] == "previous_response_not_found"


def test_e9_and_e10_what_a_leaver_left_can_be_read(server: RunningServer, http: httpx.Client) -> None:
    """E10; E9, that it survives a restart, is tests/app/cli/test_main.py."""
    body = {"model": "scripted", "input": "hang", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as answer:
        told = next(answer.iter_text())
    response_id = json.loads(told.split("data: ")[1].split("\n")[0])["response"]["id"]
    read_stream(http.get(f"/v1/responses/{response_id}?stream=true").content)

    assert http.get(f"/v1/responses/{response_id}").json()["status"] == "failed"

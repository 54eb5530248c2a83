"""Tools over HTTP: calls in every form, and the rules by which their outputs come back."""

from typing import Any

import httpx
import pytest

from tests.adapters.openai.wire import check_response, read_stream
from tests.app.http.test_turns import Json, create, refused, stream

ADD: Json = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
TOOLS: list[Json] = [
    ADD,
    {"type": "web_search"},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
    {"type": "namespace", "name": "fs", "tools": [ADD | {"name": "read"}]},
]


def output(call_id: str, text: str = "3", **fields: Any) -> Json:
    """A call's output."""
    return {"type": "function_call_output", "call_id": call_id, "output": text} | fields


def calls(body: Json) -> list[Json]:
    """The calls of a response, without their ids."""
    return [{name: item[name] for name in item if name != "id"} for item in body["output"]]


def call(call_id: str = "call_a", arguments: str = '{"a":1}', **fields: Any) -> Json:
    """A completed call of add."""
    return {
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": "add",
        "arguments": arguments,
    } | fields


def test_a_call_is_one_item_in_json_and_in_the_stream(http: httpx.Client) -> None:
    """R-254, R-295, D-33, C1, C14, C25."""
    body = check_response(create(http, "call one", tools=[ADD]))
    events = read_stream(stream(http, "call one", tools=[ADD]))

    assert calls(body) == [call()]
    assert [event["type"] for event in events[2:-1]] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    assert (events[2]["item"]["arguments"], events[2]["item"]["status"]) == ("", "in_progress")
    assert calls(events[-1]["response"]) == [call()]


def test_several_calls_keep_their_places(http: httpx.Client) -> None:
    """R-265, C22."""
    events = read_stream(stream(http, "call two", tools=[ADD]))

    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [(event["output_index"], event["item"]["call_id"]) for event in added] == [
        (0, "call_a"),
        (1, "call_b"),
    ]


def test_with_parallel_tool_calls_off_there_is_one_call(http: httpx.Client) -> None:
    body = create(http, "call two", tools=[ADD], parallel_tool_calls=False)

    assert calls(body) == [call()]
    assert body["parallel_tool_calls"] is False


def test_calls_never_share_an_id_and_always_have_one(http: httpx.Client) -> None:
    """R-010, R-254."""
    twins = [item["call_id"] for item in create(http, "call twins", tools=[ADD])["output"]]
    (nameless,) = create(http, "call nameless", tools=[ADD])["output"]

    assert twins[0] == "call_a"
    assert twins[1].startswith("call_")
    assert twins[1] != "call_a"
    assert nameless["call_id"].startswith("call_")


@pytest.mark.parametrize("text", ["call member", "call bare"])
def test_a_namespaces_member_comes_back_under_its_own_name(http: httpx.Client, text: str) -> None:
    """D-07, A2, A13."""
    (item,) = create(http, text, tools=TOOLS)["output"]

    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "read", "fs")


def test_a_custom_tool_is_called_with_text(http: httpx.Client) -> None:
    """D-07, A6, A10, A11, A12."""
    events = [
        {name: event[name] for name in event if name in ("type", "delta", "input")}
        for event in read_custom(stream(http, "call patch", tools=TOOLS))
    ]
    first = create(http, "call patch", tools=TOOLS)
    (item,) = first["output"]
    answer = {"type": "custom_tool_call_output", "call_id": "call_a", "output": "done"}
    second = create(http, [answer], previous_response_id=first["id"], tools=TOOLS)

    assert item | {"id": ""} == {
        "id": "",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "call_a",
        "name": "patch",
        "input": "*** x",
    }
    assert events[3:5] == [
        {"type": "response.custom_tool_call_input.delta", "delta": "*** x"},
        {"type": "response.custom_tool_call_input.done", "input": "*** x"},
    ]
    assert second["output_text"] == "Hello"


def read_custom(body: bytes) -> list[Json]:
    """A stream that the Open Responses schema has no words for."""
    import json

    frames = body.decode().removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    return [json.loads(frame.split("\ndata: ")[1]) for frame in frames]


def test_tools_are_echoed_as_they_were_sent(http: httpx.Client) -> None:
    """D-07, A1, A3, A5."""
    body = create(http, "hi", tools=TOOLS, tool_choice="auto")

    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search", "custom", "namespace"]
    assert body["tools"][0] == ADD | {"description": None, "strict": None}
    assert body["tool_choice"] == "auto"


def test_outputs_go_on_where_the_calls_were_made(http: httpx.Client) -> None:
    """R-198, G-111, G-116: whatever order they come in, log and engine have them in the calls' order."""
    first = create(http, "call two", tools=[ADD])
    second = create(
        http,
        [output("call_b", "two"), output("call_a", "one")],
        previous_response_id=first["id"],
        tools=[ADD],
    )
    third = create(http, "hi", previous_response_id=second["id"])

    log = http.get(f"/v1/responses/{second['id']}/events").json()["data"][0]["data"]
    assert [message["content"] for message in log["input"]] == ["one", "two"]
    assert third["output_text"] == "Hello"


def test_echoed_calls_of_the_last_answer_are_left_out(http: httpx.Client) -> None:
    """R-182, R-183, R-184, R-185, G-102."""
    first = create(http, "call one", tools=[ADD])
    echo = call(arguments='{ "a" : 9 }')

    second = create(http, [echo, output("call_a")], previous_response_id=first["id"], tools=[ADD])

    log = http.get(f"/v1/responses/{second['id']}/events").json()["data"][0]["data"]
    assert log["input"] == [{"role": "tool", "content": "3", "call_id": "call_a"}]


USER: Json = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("items", "code"),
    [
        pytest.param([call("call_x"), output("call_a"), output("call_b")], "unknown_call_id", id="G-101"),
        pytest.param([USER], "missing_tool_output", id="G-108"),
        pytest.param([output("call_a")], "missing_tool_output", id="G-109"),
        pytest.param([call(), output("call_a")], "missing_tool_output", id="G-103"),
        pytest.param([output("call_a"), output("call_a")], "duplicate_tool_output", id="G-110"),
        pytest.param([output("call_a"), output("call_x")], "unknown_call_id", id="G-106"),
        pytest.param(
            [output("call_a"), output("call_b"), {"type": "function_call_output", "output": "3"}],
            "missing_call_id",
            id="G-104",
        ),
    ],
)
def test_a_fan_out_must_be_answered_whole_and_at_once(
    http: httpx.Client, items: list[Json], code: str
) -> None:
    """R-169, R-183, R-191 … R-195, G-104: the refusal leaves no trace and no cache header (R-188)."""
    first = create(http, "call two", tools=[ADD])
    body = {"model": "scripted", "input": items, "previous_response_id": first["id"]}

    answer = http.post("/v1/responses", json=body)

    error = refused(answer, 400)
    assert (error["param"], error["code"]) == ("input", code)
    assert "x-session-cache" not in answer.headers
    # G-097: the right outputs still go on from there.
    create(http, [output("call_a"), output("call_b")], previous_response_id=first["id"])


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([output("call_a"), USER, output("call_b")], id="G-107"),
        pytest.param([USER, output("call_b"), output("call_a")], id="R-191"),
        pytest.param([call(), output("call_a"), call("call_b"), output("call_b"), USER], id="R-186"),
    ],
)
def test_outputs_may_stand_anywhere(http: httpx.Client, items: list[Json]) -> None:
    """D-39: they are paired by their `call_id`; the model reads them behind the calls."""
    first = create(http, "call two", tools=[ADD])

    body = create(http, items, previous_response_id=first["id"])

    listed = http.get(f"/v1/responses/{body['id']}/input_items?order=asc").json()["data"]
    assert [item.get("call_id") for item in listed] == [None, "call_a", "call_b", "call_a", "call_b", None]


def test_the_whole_history_beside_the_id_is_read_once(http: httpx.Client) -> None:
    """D-39: as LlamaIndex sends it with `track_previous_responses=True`; half of it is new."""
    first = create(http, "call one", tools=[ADD])
    second = create(http, [output("call_a")], previous_response_id=first["id"])
    more = create(http, "more", previous_response_id=second["id"])
    (asked,) = first["output"]
    history = [
        {"role": "user", "content": "call one"},
        {name: asked[name] for name in ("type", "call_id", "name", "arguments")},
        output("call_a"),
        {"role": "assistant", "content": second["output_text"]},
    ]
    again = {"role": "user", "content": "more"}

    whole = create(http, [*history, again], previous_response_id=second["id"])
    half = create(http, [history[0], again], previous_response_id=second["id"])

    assert whole["usage"]["input_tokens"] == more["usage"]["input_tokens"]
    assert half["usage"]["input_tokens"] > more["usage"]["input_tokens"]


def test_an_output_for_a_call_that_was_never_made_is_refused(http: httpx.Client) -> None:
    """R-190, G-105."""
    first = create(http, "hi")
    body = {"model": "scripted", "input": [output("call_a")], "previous_response_id": first["id"]}

    assert refused(http.post("/v1/responses", json=body), 400)["code"] == "unexpected_tool_output"


@pytest.mark.parametrize(
    "items",
    [
        [call()],
        [call(), {"role": "user", "content": "x"}],
        [output("call_a")],
        [call(), output("call_b")],
        [call(), call(), output("call_a")],
        [call(""), output("")],
    ],
)
def test_a_history_of_its_own_must_be_whole_too(http: httpx.Client, items: list[Json]) -> None:
    """R-187, R-200, R-201, R-202, R-203, R-205, R-207, R-208, R-209, G-114, G-115."""
    body = {"model": "scripted", "input": [{"role": "user", "content": "a"}, *items]}

    error = refused(http.post("/v1/responses", json=body), 400)

    assert error["param"] == "input"
    assert "tool_result" not in error["message"]


def test_a_history_of_its_own_is_put_in_order(http: httpx.Client) -> None:
    """R-210, R-212, G-112, G-117."""
    items: list[Json] = [
        {"role": "user", "content": "a"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        call("call_a"),
        call("call_b"),
        output("call_b", "two"),
        output("call_a", "one", is_error=True),
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "hi"},
    ]

    body = create(http, items)

    log = http.get(f"/v1/responses/{body['id']}/events").json()["data"][0]["data"]["input"]
    assert [message["role"] for message in log] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message["content"] for message in log[2:4]] == ["one", "two"]
    assert log[1]["reasoning"] == "hm"
    assert log[2]["is_error"] is True


def test_an_item_can_be_named_instead_of_sent(http: httpx.Client) -> None:
    first = create(http, "call one", tools=[ADD])
    reference: Json = {"type": "item_reference", "id": first["output"][0]["id"]}

    body = create(http, [{"role": "user", "content": "a"}, reference, output("call_a")])

    log = http.get(f"/v1/responses/{body['id']}/events").json()["data"][0]["data"]["input"]
    assert log[1]["tool_calls"] == [{"id": "call_a", "name": "add", "arguments": '{"a":1}'}]


def test_an_item_that_is_not_there_cannot_be_named(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": [{"role": "user", "content": "a"}, {"id": "msg_unknown"}]}

    error = refused(http.post("/v1/responses", json=body), 404)

    assert (error["code"], error["param"]) == ("item_not_found", "input")
    assert "input[1]" in error["message"]


def test_ids_of_items_that_are_sent_whole_are_only_labels(http: httpx.Client) -> None:
    """B19, B20."""
    items: list[Json] = [
        {"role": "user", "content": "a", "id": "msg_unknown"},
        {"type": "reasoning", "id": "rs_unknown", "summary": [], "encrypted_content": "x"},
        call(id="fc_unknown"),
        output("call_a", id="fco_unknown"),
    ]

    assert create(http, items, store=False)["output_text"] == "Hello"


def test_a_choice_of_a_hosted_tool_is_refused_by_its_name(http: httpx.Client) -> None:
    """D-07."""
    hosted = {"type": "web_search"}
    body = {"model": "scripted", "input": "hi", "tools": [hosted, ADD], "tool_choice": hosted}

    error = refused(http.post("/v1/responses", json=body), 400)

    assert (error["param"], error["code"]) == ("tool_choice", "unsupported_tool")
    assert "web_search" in error["message"]


@pytest.mark.parametrize(
    "fields", [{}, {"stream": True}, {"background": True}], ids=["json", "sse", "queued"]
)
def test_a_hosted_tool_beside_others_is_echoed_and_named_by_a_header(
    http: httpx.Client, fields: Json
) -> None:
    """D-07."""
    tools = [{"type": "web_search"}, ADD, {"type": "file_search", "vector_store_ids": []}]
    body = {"model": "scripted", "input": "hi", "tools": tools}

    answer = http.post("/v1/responses", json=body | fields)

    assert answer.headers["x-turnlog-ignored-tools"] == "file_search, web_search"
    assert "x-turnlog-ignored-tools" not in http.post("/v1/responses", json=body | {"tools": [ADD]}).headers


def test_a_stored_prompt_is_refused_by_its_name(http: httpx.Client) -> None:
    error = refused(http.post("/v1/responses", json={"prompt": {"id": "pmpt_1"}}), 400)

    assert (error["param"], error["code"]) == ("prompt", "unsupported_parameter")


@pytest.mark.parametrize("text", ["boom", "refuse", "exhaust"])
def test_an_sdk_is_told_not_to_repeat_a_whole_inference(http: httpx.Client, text: str) -> None:
    """D-32."""
    answer = http.post("/v1/responses", json={"model": "scripted", "input": text})

    assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")


def test_json_answers_say_how_long_they_took(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", json={"model": "scripted", "input": "slow"})
    streamed = http.post("/v1/responses", json={"model": "scripted", "input": "hi", "stream": True})

    assert int(answer.headers["openai-processing-ms"]) > 0
    assert "openai-processing-ms" not in streamed.headers

"""What a response was made from: its input items, page by page, and the tokens they are."""

from typing import Any

import httpx
import pytest

from tests.app.http.test_turns import create, refused

Json = dict[str, Any]

ADD: Json = {"type": "function", "name": "add", "parameters": {"type": "object"}}
PIXEL = "data:image/png;base64,aGk="


def items(http: httpx.Client, response_id: str, **query: Any) -> list[Json]:
    """One page of items."""
    answer = http.get(f"/v1/responses/{response_id}/input_items", params=query)
    assert answer.status_code == 200, answer.text
    page: Json = answer.json()
    assert page["object"] == "list"
    data: list[Json] = page["data"]
    assert (page["first_id"], page["last_id"]) == ((data[0]["id"], data[-1]["id"]) if data else (None, None))
    return data


def told(item: Json) -> tuple[Any, ...]:
    """An item without its id."""
    match item["type"]:
        case "message":
            return item["role"], item["content"][0]["text"]
        case "reasoning":
            return "reasoning", item["summary"][0]["text"]
        case "function_call":
            return "call", item["call_id"], item["arguments"]
        case kind:
            return kind, item["call_id"], item["output"]


def test_the_items_of_the_whole_context_are_listed_the_newest_first(http: httpx.Client) -> None:
    """D-40."""
    first = create(http, "call one", tools=[ADD])
    output = {"type": "function_call_output", "call_id": "call_a", "output": "1"}
    second = create(http, [output, {"role": "user", "content": "hi"}], previous_response_id=first["id"])
    (call,) = first["output"]

    oldest_first = items(http, second["id"], order="asc")

    assert [told(item) for item in oldest_first] == [
        ("user", "call one"),
        ("call", call["call_id"], '{"a":1}'),
        ("function_call_output", call["call_id"], "1"),
        ("user", "hi"),
    ]
    assert oldest_first[1]["id"] == call["id"]
    assert items(http, second["id"]) == oldest_first[::-1]
    assert len({item["id"] for item in oldest_first}) == 4


def test_a_request_that_brings_a_whole_conversation_has_it_item_by_item(http: httpx.Client) -> None:
    given: list[Json] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "add"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"role": "assistant", "content": "It is 3."},
        {"role": "user", "content": "hi"},
    ]
    body = create(http, given)

    assert [told(item) for item in items(http, body["id"], order="asc")] == [
        ("system", "Be kind."),
        ("user", "add"),
        ("reasoning", "hm"),
        ("call", "c1", "{}"),
        ("function_call_output", "c1", "3"),
        ("assistant", "It is 3."),
        ("user", "hi"),
    ]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_follow_each_other_without_a_gap(http: httpx.Client, order: str) -> None:
    body = create(http, [{"role": "user", "content": str(number)} for number in range(7)])
    pages: list[list[Json]] = [items(http, body["id"], order=order, limit=3)]
    while len(pages[-1]) == 3:
        pages.append(items(http, body["id"], order=order, limit=3, after=pages[-1][-1]["id"]))

    assert [item for page in pages for item in page] == items(http, body["id"], order=order)
    assert [len(page) for page in pages] == [3, 3, 1]


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 101}, {"limit": "x"}, {"order": "up"}, {"after": "msg_0"}]
)
def test_a_page_that_cannot_be_is_refused_by_name(http: httpx.Client, query: Json) -> None:
    body = create(http, "hi")

    error = refused(http.get(f"/v1/responses/{body['id']}/input_items", params=query), 400)

    assert error["param"] == next(iter(query))


def test_the_count_is_the_number_the_turn_then_reports(http: httpx.Client) -> None:
    """D-40: with chain, tools and instructions."""
    first = create(http, "one two", instructions="Be kind.")
    for asked in (
        {"input": "hi"},
        {"input": "hi", "previous_response_id": first["id"]},
        {"input": "hi", "tools": [ADD], "tool_choice": "none"},
        {"input": [{"role": "user", "content": "a b c"}], "instructions": "Be brief now."},
    ):
        body = {"model": "scripted", **asked}
        counted = http.post("/v1/responses/input_tokens", json=body).json()

        assert counted == {
            "object": "response.input_tokens",
            "input_tokens": http.post("/v1/responses", json=body).json()["usage"]["input_tokens"],
        }


def test_what_does_not_fit_is_counted_all_the_same(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": "word " * 500}

    assert http.post("/v1/responses/input_tokens", json=body).json()["input_tokens"] > 500
    refused(http.post("/v1/responses", json=body), 400)


def test_to_get_a_count_is_a_post(http: httpx.Client) -> None:
    answer = http.get("/v1/responses/input_tokens")

    assert "POST" in refused(answer, 405)["message"]
    assert answer.headers["allow"] == "POST"

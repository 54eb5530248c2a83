"""Chat Completions over HTTP, on a real socket: the same turns, in the log and for every command (D-40)."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.openai.chat_wire import assembled, check_completion, read_chunks
from tests.app.http.test_turns import create, refused
from tests.app.scripts import SCRIPT
from tests.faults.witness import scripted
from tests.serving import RunningServer, turnlog
from tests.waiting import until

Json = dict[str, Any]

ADD: Json = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def user(text: str) -> Json:
    """A user's message."""
    return {"role": "user", "content": text}


def post(
    http: httpx.Client, *messages: Json, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    """What the server answers to a chat."""
    body = {"model": "scripted", "messages": messages} | fields
    return http.post("/v1/chat/completions", json=body, headers=headers)


def complete(http: httpx.Client, *messages: Json, **fields: Any) -> Json:
    """A chat's completion."""
    answer = post(http, *messages, **fields)
    assert answer.status_code == 200, answer.text
    return check_completion(answer.json())


def chunks(http: httpx.Client, *messages: Json, **fields: Any) -> list[Json]:
    """A chat's whole stream, with its usage."""
    answer = post(http, *messages, stream=True, stream_options={"include_usage": True}, **fields)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return read_chunks(answer.content)


def digits(completion: Json) -> str:
    """What its id shares with that of its response."""
    return str(completion["id"]).removeprefix("chatcmpl-")


def rows(http: httpx.Client, query: str) -> list[Json]:
    """The rows of the audit that meet the query."""
    found: list[Json] = http.get(f"/v1/audit/responses?{query}").json()["data"]
    return found


def stored(http: httpx.Client, completion: Json) -> Json:
    """The turn as the audit shows it, once its end is stored."""

    def found() -> Json:
        turn: Json = http.get(f"/v1/audit/responses/{completion['id']}").json()
        return turn if turn.get("ended") else {}

    return until(found)


@pytest.mark.parametrize("text", ["hi", "think", "call two", "cut"])
def test_a_turn_says_the_same_whole_streamed_and_on_the_other_surface(http: httpx.Client, text: str) -> None:
    whole = complete(http, user(text), tools=[ADD])
    streamed = assembled(chunks(http, user(text), tools=[ADD]))
    flat = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    response = create(http, text, tools=[flat])

    (choice,), (other,) = whole["choices"], streamed["choices"]
    assert (choice["message"], choice["finish_reason"]) == (other["message"], other["finish_reason"])
    assert (choice["message"]["content"] or "") == response["output_text"]
    calls = [item["arguments"] for item in response["output"] if item["type"] == "function_call"]
    assert [call["function"]["arguments"] for call in choice["message"].get("tool_calls", [])] == calls
    for usage in (whole["usage"], streamed["usage"]):
        assert usage["prompt_tokens"] == response["usage"]["input_tokens"]
        assert usage["total_tokens"] == response["usage"]["total_tokens"]


def test_the_usage_comes_only_to_whoever_asks_for_it(http: httpx.Client) -> None:
    told = read_chunks(post(http, user("hi"), stream=True).content)

    assert ["usage" in chunk for chunk in told] == [False] * 4


def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    """D5: a chunk without news would be taken for one with some."""
    with scripted(tmp_path, SCRIPT, TURNLOG_HEARTBEAT_S="0.1") as quiet, quiet.http as http:
        told = post(http, user("slow"), stream=True).text

    assert "}\n\n: keep-alive\n\n" in told
    assert assembled([*read_chunks(told.replace(": keep-alive\n\n", "").encode()), {"usage": None}])


def test_a_turn_that_fails_is_an_error_before_and_after_the_first_byte(http: httpx.Client) -> None:
    """D-05, D-32."""
    answer = post(http, user("boom"))
    error = refused(answer, 500)

    assert (error["message"], answer.headers["x-should-retry"]) == ("it broke", "false")
    assert read_chunks(post(http, user("boom"), stream=True).content)[-1] == {"error": error}


def test_an_output_without_its_call_is_refused_by_its_name(http: httpx.Client) -> None:
    """R-201, R-211."""
    error = refused(post(http, user("hi"), {"role": "tool", "tool_call_id": "call_x", "content": "1"}), 400)

    assert (error["param"], error["code"]) == ("messages", "unexpected_tool_output")
    assert "tool message with tool_call_id 'call_x' at messages[1]" in error["message"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/embeddings", "/v1/completions"])
def test_what_is_not_served_is_told_with_what_is(http: httpx.Client, path: str) -> None:
    assert "POST /v1/chat/completions" in refused(http.post(path, json={}), 404)["message"]


# ── the log ───────────────────────────────────────────────────────────────────────────────────────


def test_every_route_takes_a_completion_by_either_id(http: httpx.Client) -> None:
    completion = complete(http, user("hi"))
    chat_id, response_id = completion["id"], stored(http, completion)["id"]

    paths = ["/v1/chat/completions/{}", "/v1/audit/chains/{}", "/v1/audit/responses?chain={}"]
    for path in ("/v1/responses/{}", "/v1/audit/responses/{}"):
        paths += [path, f"{path}/events"]
    for path in (*paths, "/v1/responses/{}/input_items", "/v1/responses/{}?stream=true"):
        one, other = (http.get(path.format(each)) for each in (chat_id, response_id))
        assert (one.status_code, one.content) == (200, other.content), path
    assert http.get(f"/v1/audit/compare?a={chat_id}&b={response_id}").status_code == 200
    assert http.post("/v1/operations/cancel", json={"response_id": chat_id}).json()["id"] == response_id
    assert create(http, "hi", previous_response_id=chat_id)["previous_response_id"] == response_id
    deleted = http.post("/v1/operations/delete", json={"response_id": chat_id}).json()
    assert deleted["deleted"] == 1


def test_commands_take_a_completion_by_its_id(http: httpx.Client, server: RunningServer) -> None:
    chat_id = complete(http, user("hi"), metadata={"of": "commands"})["id"]
    until(lambda: rows(http, "metadata.of=commands&state=persisted"))

    listed = turnlog(
        "ls", "--db", str(server.database), "--surface", "chat", "--metadata", "of=commands", "--json"
    )
    logged = turnlog("log", chat_id, "--db", str(server.database))
    removed = turnlog("rm", chat_id, "--yes", "--db", str(server.database))

    assert [json.loads(line)["surface"] for line in listed.stdout.splitlines()] == ["chat"]
    assert logged.stdout.startswith(f"resp_{chat_id.removeprefix('chatcmpl-')}")
    assert removed.stdout == "1 response deleted\n"


def test_the_surface_is_a_filter_of_the_audit(http: httpx.Client) -> None:
    create(http, "hi", metadata={"of": "surfaces"})
    stored(http, complete(http, user("hi"), metadata={"of": "surfaces"}))

    both = rows(http, "metadata.of=surfaces&order=asc")
    assert [row["surface"] for row in both] == ["responses", "chat"]
    assert [row["id"] for row in rows(http, "metadata.of=surfaces&surface=chat")] == [both[1]["id"]]
    assert refused(http.get("/v1/audit/responses?surface=phone"), 400)["param"] == "surface"


def test_a_chat_whose_history_shows_it_is_one_conversation(http: httpx.Client) -> None:
    """Decision 25: other instructions do not matter, and what forks off is a fork."""
    asked = user("a question of its own")
    first = complete(http, {"role": "system", "content": "It is noon."}, asked)
    history = [asked, first["choices"][0]["message"]]
    second = complete(http, {"role": "system", "content": "It is one."}, *history, user("and then?"))
    fork = complete(http, *history, user("or then?"))
    stranger = complete(http, user("another"), first["choices"][0]["message"], user("and then?"))

    assert stored(http, stranger)["follows"] is None
    lines = http.get(f"/v1/audit/chains/{second['id']}").json()["data"]

    assert [(line["id"], line["kind"]) for line in lines] == [
        (f"resp_{digits(first)}", "start"),
        (f"resp_{digits(fork)}", "fork"),
        (f"resp_{digits(second)}", "continuation"),
    ]
    assert lines[-1]["follows"] == f"resp_{digits(first)}"


def test_a_tool_loop_is_one_conversation(http: httpx.Client) -> None:
    asked = user("call one, the one of a loop")
    first = complete(http, asked, tools=[ADD])
    message = first["choices"][0]["message"]
    output = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "3"}
    second = complete(http, asked, message, output, tools=[ADD])

    assert stored(http, second)["follows"] == f"resp_{digits(first)}"


# ── stored completions ────────────────────────────────────────────────────────────────────────────


def test_stored_completions_are_listed_page_by_page(http: httpx.Client) -> None:
    made = [complete(http, user("hi"), metadata={"of": "pages"}) for _ in range(3)]
    create(http, "hi", metadata={"of": "pages"})
    post(http, user("boom"), metadata={"of": "pages"})
    until(lambda: len(rows(http, "metadata.of=pages&state=persisted")) == 4)

    first = http.get("/v1/chat/completions", params={"limit": 2, "metadata[of]": "pages"}).json()
    rest = http.get(
        "/v1/chat/completions", params={"metadata[of]": "pages", "after": first["last_id"]}
    ).json()
    newest = http.get("/v1/chat/completions", params={"metadata[of]": "pages", "order": "desc"}).json()

    assert (first["data"] + rest["data"], first["has_more"], rest["has_more"]) == (made, True, False)
    assert newest["data"] == made[::-1]
    for params in ({"limit": 0}, {"limit": "x"}, {"order": "up"}, {"after": "chatcmpl-x"}):
        refused(http.get("/v1/chat/completions", params=params), 400)


def test_the_metadata_of_a_stored_completion_are_replaced(http: httpx.Client) -> None:
    completion = complete(http, user("hi"), metadata={"team": "a", "old": "x"})
    path = f"/v1/chat/completions/{completion['id']}"
    until(lambda: rows(http, "metadata.old=x&state=persisted"))

    changed = http.post(path, json={"metadata": {"team": "changed"}})

    assert (changed.status_code, changed.json()) == (200, {**completion, "metadata": {"team": "changed"}})
    assert http.get(path).json() == changed.json()
    assert [row["id"] for row in rows(http, "metadata.team=changed")] == [f"resp_{digits(completion)}"]
    assert rows(http, "metadata.old=x") == []
    events = http.get(f"/v1/responses/{completion['id']}/events").json()["data"]
    assert events[-1]["event"] == "response.metadata_changed.v1"
    assert refused(http.post(path, json={"metadata": {"k": "x" * 513}}), 400)["param"] == "metadata.k"
    refused(http.post(path, json={}), 400)
    refused(http.post(path, json={"metadata": {"retention_seconds": "soon"}}), 400)


def test_a_deleted_completion_is_gone(http: httpx.Client) -> None:
    completion = complete(http, user("hi"))
    path = f"/v1/chat/completions/{completion['id']}"

    deleted = http.delete(path).json()

    assert deleted == {"id": completion["id"], "object": "chat.completion.deleted", "deleted": True}
    for answer in (http.get(path), http.delete(path), http.post(path, json={"metadata": {}})):
        refused(answer, 404)


def test_only_a_committed_turn_of_a_chat_is_a_stored_completion(http: httpx.Client) -> None:
    response, failed = create(http, "hi"), post(http, user("boom"))
    unstored = complete(http, user("hi"), store=False)

    for response_id in (response["id"], failed.headers["x-response-id"], unstored["id"]):
        refused(http.get(f"/v1/chat/completions/{response_id}"), 404)


def test_a_setting_says_whether_chats_are_stored(tmp_path: Path) -> None:
    """D-30."""
    with scripted(tmp_path, SCRIPT, TURNLOG_CHAT_STORE="false") as server, server.http as http:
        forgotten, kept = (complete(http, user("hi"), store=store) for store in (None, True))
        refused(http.get(f"/v1/chat/completions/{forgotten['id']}"), 404)
        assert http.get(f"/v1/chat/completions/{kept['id']}").json() == kept


# ── by the same code ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
def test_a_repeat_under_a_key_is_the_same_turn(http: httpx.Client, *, stream: bool) -> None:
    """T2-26."""
    key = {"Idempotency-Key": f"chat {stream}"}
    first, again = (post(http, user("think"), stream=stream, headers=key) for _ in range(2))

    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"
    other = post(http, user("hi"), headers=key)
    assert refused(other, 422)["code"] == "idempotency_key_reused"


def test_a_client_that_leaves_cancels_its_turn(http: httpx.Client) -> None:
    """R-370."""
    body = {"model": "scripted", "messages": [user("hang")], "stream": True, "metadata": {"of": "leaving"}}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        until(lambda: "Hel" in next(lines))

    until(lambda: rows(http, "metadata.of=leaving&reason=client_abort"))


def test_a_turn_that_is_cancelled_is_an_error(http: httpx.Client) -> None:
    """There is no finish reason for it; the Responses API has the status `cancelled` (D-32)."""
    body = {"model": "scripted", "messages": [user("hang")], "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        running = http.get(f"/v1/responses/{first['id']}?stream=true")
        http.post("/v1/operations/cancel", json={"response_id": first["id"]}).raise_for_status()
        told = [line for line in lines if line]

    assert refused(running, 400)["code"] == "not_ended"
    assert json.loads(told[-2].removeprefix("data: "))["error"]["code"] == "cancelled"
    assert told[-1] == "data: [DONE]"

"""The routes of auditors and operators on a real server: what they answer, and to whom."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.app.http.keyed import KeyedServer, keyed_serving
from tests.app.http.test_turns import create, refused
from tests.app.scripts import SCRIPT, STOP, entry
from turnlog.domain.tokens import digest

Json = dict[str, Any]

SECRET = "geheim"
ANSWER = "verraten"
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}
MEANT = {**SCRIPT, "turns": [entry(SECRET, {"text": ANSWER}, STOP), *SCRIPT["turns"]]}


class Told(NamedTuple):
    """What was said to the server before the tests."""

    first: str
    failed: str
    second: str
    call: str
    of_bob: str


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server with keys."""
    with keyed_serving(tmp_path_factory.mktemp("audit"), script=MEANT) as running:
        yield running


@pytest.fixture(scope="module")
def told(keyed: KeyedServer) -> Told:
    """A conversation of alice with a failed turn and a fork, and a turn of bob."""
    with keyed.client("alice") as http, keyed.client("bob") as bob:
        first = create(http, SECRET, instructions="Be nice", metadata={"team": "x", "n": "1"})["id"]
        body = {"model": "scripted", "input": "boom", "previous_response_id": first}
        failed = http.post("/v1/responses", json=body).headers["x-response-id"]
        second = create(http, "hi", previous_response_id=first)["id"]
        call = create(http, "call one", previous_response_id=first, tools=[ADD])["id"]
        of_bob = create(bob, "hi")["id"]
        for client, response_id in ((http, failed), (http, call), (bob, of_bob)):
            # Answered once the last event of the turn is stored.
            assert client.get(f"/v1/responses/{response_id}/events").status_code == 200
    return Told(first, failed, second, call, of_bob)


@pytest.fixture
def ada(keyed: KeyedServer) -> Iterator[httpx.Client]:
    """The auditor."""
    with keyed.client("ada") as http:
        yield http


@pytest.fixture
def olga(keyed: KeyedServer) -> Iterator[httpx.Client]:
    """The operator."""
    with keyed.client("olga") as http:
        yield http


def asked(http: httpx.Client, path: str) -> Json:
    """What the server answers."""
    answer = http.get(path)
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


def found(http: httpx.Client, query: str) -> list[str]:
    """The ids of the responses that meet the query."""
    return [row["id"] for row in asked(http, f"/v1/audit/responses?{query}")["data"]]


def test_responses_are_found_by_each_condition(ada: httpx.Client, told: Told) -> None:
    everything = found(ada, "order=asc")

    assert everything == list(told)
    assert found(ada, "") == everything[::-1]
    assert found(ada, "status=failed&model=scripted&since=1h") == [told.failed]
    assert found(ada, "reason=error") == found(ada, "state=failed") == [told.failed]
    assert found(ada, "owner=bob") == [told.of_bob]
    assert found(ada, f"chain={told.second}&order=asc") == everything[:4]
    assert found(ada, "metadata.team=x&metadata.n=1") == [told.first]
    assert found(ada, "tool=add") == [told.call]
    assert found(ada, "q=VERRAT") == [told.first]
    assert found(ada, "q=VE") == [told.first]
    assert found(ada, "min_tokens=100000") == found(ada, "until=1d") == []
    assert found(ada, "replay_of=resp_x") == []


def test_a_page_says_how_far_a_scan_came(ada: httpx.Client, told: Told) -> None:
    """T2-14."""
    scans = [asked(ada, f"/v1/audit/responses?q={text}")["scan"] for text in ("ve", "verrat")]

    assert scans[0]["reached_id"] == told.first
    assert (scans[0]["responses"], scans[0]["complete"], scans[1]) == (5, True, None)


def test_pages_follow_each_other(ada: httpx.Client, told: Told) -> None:
    first = asked(ada, "/v1/audit/responses?limit=2&order=asc")
    rest = asked(ada, f"/v1/audit/responses?limit=10&order=asc&after={first['last_id']}")

    assert [row["id"] for row in (*first["data"], *rest["data"])] == list(told)
    assert (first["object"], first["has_more"], first["last_id"]) == ("list", True, told.failed)
    assert (rest["has_more"], rest["last_id"]) == (False, told.of_bob)


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/audit/responses?sttus=failed", "sttus"),
        ("/v1/audit/responses?since=soon", "since"),
        ("/v1/audit/responses?limit=1001", "limit"),
        ("/v1/audit/responses?after=resp_x", "after"),
        ("/v1/audit/responses?status=failed&status=completed", "status"),
        ("/v1/audit/responses/resp_x?include=everything", "include"),
        ("/v1/audit/responses/resp_x?includes=x", "includes"),
        ("/v1/audit/responses/resp_x/events?after=1", "after"),
        ("/v1/audit/chains/resp_x?limit=1", "limit"),
        ("/v1/audit/compare?a=resp_x", "b"),
        ("/v1/audit/export?after=-1", "after"),
        ("/v1/audit/export?after=99999999999999999999", "after"),
        ("/v1/audit/export?until=soon", "until"),
        ("/v1/audit/export?limit=1", "limit"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_name(ada: httpx.Client, path: str, param: str) -> None:
    assert refused(ada.get(path), 400)["param"] == param


def test_what_is_not_there_is_404(ada: httpx.Client, told: Told) -> None:
    for path in (
        "responses/resp_x",
        "responses/resp_x/events",
        "chains/resp_x",
        f"compare?a={told.first}&b=x",
    ):
        assert refused(ada.get(f"/v1/audit/{path}"), 404)["code"] == "response_not_found"


def test_a_turn_is_told_whole(ada: httpx.Client, told: Told) -> None:
    turn = asked(ada, f"/v1/audit/responses/{told.second}?include=prompt_ids")

    assert turn["object"] == "audit.turn"
    assert turn["seen"] == {
        "messages": [
            {"role": "system", "content": "Be nice"},
            {"role": "user", "content": SECRET},
            {"role": "assistant", "content": ANSWER},
            {"role": "user", "content": "hi"},
        ],
        "left_out_messages": 0,
        "missing_previous_response_id": None,
    }
    assert digest(turn["prompt"]["ids"]) == turn["prompt"]["sha256"]
    assert len(turn["prompt"]["ids"]) == turn["prompt"]["tokens"] == turn["usage"]["input_tokens"]
    assert turn["request"]["input"] == [{"role": "user", "content": "hi"}]
    assert turn["response"]["output_text"] == "Hello"
    times = [turn["times"][state] for state in ("created", "started", "first_token", "ended")]
    assert times == sorted(times)
    assert (turn["failure"], turn["content"], turn["owner"]) == (None, "shown", "alice")


def test_a_prompt_is_told_in_ids_only_on_demand(ada: httpx.Client, told: Told) -> None:
    turn = asked(ada, f"/v1/audit/responses/{told.second}")

    assert turn["prompt"].keys() == {"tokens", "sha256"}


def test_a_failure_is_told_in_plain_words(ada: httpx.Client, told: Told) -> None:
    failure = asked(ada, f"/v1/audit/responses/{told.failed}")["failure"]

    assert (failure["reason"], failure["message"]) == ("error", "it broke")
    assert "failed with an error" in failure["happened"]


def test_the_timeline_has_times_since_the_first_event(ada: httpx.Client, told: Told) -> None:
    timeline = asked(ada, f"/v1/audit/responses/{told.failed}/events")

    told_events = [event["event"] for event in timeline["data"]]
    assert (told_events[0], told_events[-1]) == ("response.created.v1", "response.failed.v1")
    since = [event["after_ms"] for event in timeline["data"]]
    assert (since[0], since) == (0, sorted(since))


def test_a_conversation_is_told_from_any_of_its_responses(ada: httpx.Client, told: Told) -> None:
    lines = [
        (told.first, "start", 0, SECRET, ANSWER),
        (told.failed, "attempt", 1, "boom", "Hel"),
        (told.call, "fork", 1, "call one", '[calls add {"a":1}]'),
        (told.second, "continuation", 0, "hi", "Hello"),
    ]

    for response_id in told[:4]:
        conversation = asked(ada, f"/v1/audit/chains/{response_id}")
        assert [
            (node["id"], node["kind"], node["depth"], node["asked"], node["answered"])
            for node in conversation["data"]
        ] == lines


def test_two_turns_are_compared(ada: httpx.Client, told: Told) -> None:
    comparison = asked(ada, f"/v1/audit/compare?a={told.first}&b={told.second}")

    assert comparison["object"] == "audit.comparison"
    assert comparison["text"]["diff"] == ["--- a", "+++ b", "@@ -1 +1 @@", f"-{ANSWER}", "+Hello"]
    assert (comparison["prompt"]["same"], comparison["model_fingerprint"]["same"]) == (False, True)


# ── who may read what (D-18) ──────────────────────────────────────────────────────────────────────


def test_operators_learn_nothing_of_what_was_said_in_turns_that_went_well(
    olga: httpx.Client, told: Told
) -> None:
    for path in (
        "responses",
        f"responses/{told.first}?include=prompt_ids",
        f"responses/{told.first}/events",
        f"chains/{told.first}",
    ):
        answer = olga.get(f"/v1/audit/{path}")
        assert answer.status_code == 200
        for said in (SECRET, ANSWER, "Be nice", "team", '"add"'):
            assert said not in answer.text, path


def test_operators_see_how_turns_went(olga: httpx.Client, told: Told) -> None:
    turn = asked(olga, f"/v1/audit/responses/{told.first}")

    assert (turn["status"], turn["content"], turn["usage"]["output_tokens"]) == ("completed", "withheld", 1)
    assert (turn["request"]["input"], turn["request"]["metadata"], turn["response"]) == (None, None, None)
    assert turn["request"]["sampling"]["temperature"] == 1.0
    assert turn["times"]["ended"]


def test_operators_read_failed_turns_with_what_the_model_saw(olga: httpx.Client, told: Told) -> None:
    turn = asked(olga, f"/v1/audit/responses/{told.failed}")

    assert [message["content"] for message in turn["seen"]["messages"]] == ["Be nice", SECRET, ANSWER, "boom"]
    assert turn["response"]["output_text"] == "Hel"
    lines = asked(olga, f"/v1/audit/chains/{told.failed}")["data"]
    assert [(node["content"], node["asked"]) for node in lines] == [
        ("withheld", None),
        ("shown", "boom"),
        ("withheld", None),
        ("withheld", None),
    ]


def test_operators_read_replays_of_failed_turns_and_compare_them(
    keyed: KeyedServer, olga: httpx.Client, told: Told
) -> None:
    again = olga.post(f"/v1/responses/{told.failed}/replay").headers["x-response-id"]
    with keyed.client("alice") as http:
        asked(http, f"/v1/responses/{again}/events")  # answered once the last of them is stored
    comparison = asked(olga, f"/v1/audit/compare?a={told.failed}&b={again}")

    assert (comparison["input"]["same"], comparison["prompt"]["same"]) == (True, True)
    assert refused(olga.get(f"/v1/audit/compare?a={told.failed}&b={told.first}"), 403)["code"] == "forbidden"


def test_operators_search_failed_turns_only(olga: httpx.Client, told: Told) -> None:
    for inside in ("q=boom", "tool=add", "metadata.team=x"):
        assert refused(olga.get(f"/v1/audit/responses?{inside}"), 403)["code"] == "forbidden"
    assert told.failed in found(olga, "q=boom&status=failed")


def test_the_log_is_taken_away_by_auditors_only(keyed: KeyedServer, told: Told) -> None:
    statuses = {
        name: keyed.send("GET", "/v1/audit/export", key=key).status for name, key in keyed.keys.items()
    }

    assert statuses == {"alice": 403, "bob": 403, "ada": 200, "olga": 403}


def test_clients_have_no_business_here(keyed: KeyedServer, told: Told) -> None:
    with keyed.client("alice") as http:
        for path in ("responses", f"responses/{told.first}", f"chains/{told.first}", "export", "compare"):
            assert refused(http.get(f"/v1/audit/{path}"), 403)["code"] == "role_not_allowed"


# ── export ────────────────────────────────────────────────────────────────────────────────────────


def exported(http: httpx.Client, query: str = "") -> list[Json]:
    """The lines of an export."""
    answer = http.get(f"/v1/audit/export?{query}")
    assert answer.headers["content-type"] == "application/jsonl; charset=utf-8"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_export_goes_on_behind_a_position(ada: httpx.Client, told: Told) -> None:
    header, *events, end = exported(ada)
    half = events[len(events) // 2]["position"]

    rest = exported(ada, f"after={half}")

    assert (header["line"], rest[0]["after"]) == ("header", half)
    assert end == {"line": "end", "events": len(events), "position": events[-1]["position"]}
    assert {event["response_id"] for event in events} >= set(told)
    assert rest[1:-1] == [event for event in events if event["position"] > half]


def test_an_export_of_a_time_has_its_events_only(ada: httpx.Client, told: Told) -> None:
    assert [line["line"] for line in exported(ada, "until=1d")] == ["header", "end"]
    assert len(exported(ada, "since=1d")) == len(exported(ada))


def test_a_stream_of_exports_does_not_use_up_the_server(keyed: KeyedServer, told: Told) -> None:
    """Whoever leaves in the midst of an export leaves nothing behind."""
    with keyed.client("ada") as http:
        for _ in range(20):
            with http.stream("GET", "/v1/audit/export") as answer:
                assert next(answer.iter_bytes()).startswith(b'{"line":"header"')
        assert exported(http)[-1]["line"] == "end"

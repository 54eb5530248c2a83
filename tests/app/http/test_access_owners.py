"""Two owners on one server: what is another's is answered as what is not there (D-18).

Same status, same body, same headers, and the same look-ups, whatever is running or being written.
"""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import httpx
import pytest

from tests.app.http.keyed import KeyedServer, keyed_serving
from tests.app.http.test_turns import create, refused, stream
from tests.app.scripts import SCRIPT, entry
from tests.app.turns.lookups import BROKEN, ID, NOTHING, ROWS, Given, Groups
from tests.domain.stories import CREATED
from tests.fakes.clock import StoppedClock
from tests.waiting import received, until
from turnlog.adapters.openai.frames import Framer
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.retrieval import Log, Retrieval
from turnlog.domain.errors import ResponseNotFoundError
from turnlog.domain.events import Recorded
from turnlog.domain.owners import LOCAL_OWNER, Role
from turnlog.domain.response import Response

MISSING = f"resp_{'0' * 32}"
MISSING_ITEM = f"rs_{'0' * 32}"
SCRIPT_OF_OWNERS = {
    **SCRIPT,
    "turns": [entry("ponder", {"reasoning": "hm"}, {"text": "Hel"}, {"hang": True}), *SCRIPT["turns"]],
}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server with keys."""
    with keyed_serving(tmp_path_factory.mktemp("owners"), SCRIPT_OF_OWNERS) as running:
        yield running


@pytest.fixture
def alice(keyed: KeyedServer) -> Iterator[httpx.Client]:
    """One client."""
    with keyed.client("alice") as http:
        yield http


@pytest.fixture
def bob(keyed: KeyedServer) -> Iterator[httpx.Client]:
    """Another, of another owner."""
    with keyed.client("bob") as http:
        yield http


def told(answer: httpx.Response, name: str) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers, without the ids of response and request and without the time."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return answer.status_code, answer.text.replace(name, "ID"), headers


@contextmanager
def begun(http: httpx.Client, text: str) -> Iterator[Json]:
    """A turn that runs while the block does: its first item, and its own id as `response_id`."""
    body = {"model": "scripted", "input": text, "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as answer:
        chunks = answer.iter_text()
        said = received(lambda: next(chunks, ""), "output_text.delta")
        events = [json.loads(line[6:]) for line in said.split("\n") if line.startswith("data: ")]
        opened = next(event["item"] for event in events if event["type"] == "response.output_item.added")
        yield opened | {"response_id": events[0]["response"]["id"]}


@contextmanager
def one(http: httpx.Client, state: str) -> Iterator[str]:
    """The id of a response in that state."""
    if state == "running":
        with begun(http, "hang") as item:
            yield item["response_id"]
        return
    body = {"model": "scripted", "input": "boom" if state == "failed" else "hi"}
    response_id = http.post("/v1/responses", json=body).headers.get("x-response-id")
    yield response_id or create(http, "hi")["id"]


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["", "?stream=true", "?stream=true&starting_after=1", "/events"])
@pytest.mark.parametrize("state", ["stored", "running", "failed"])
def test_a_foreign_id_is_read_as_a_missing_one(
    alice: httpx.Client, bob: httpx.Client, state: str, path: str
) -> None:
    with one(alice, state) as response_id:
        foreign = bob.get(f"/v1/responses/{response_id}{path}")
        missing = bob.get(f"/v1/responses/{MISSING}{path}")

        assert told(foreign, response_id) == told(missing, MISSING)
        assert refused(foreign, 404)["code"] == "response_not_found"
        # It is there, and its owner reads it, as soon as its first event is stored.
        assert until(lambda: alice.get(f"/v1/responses/{response_id}/events").status_code == 200)


@pytest.mark.parametrize("text", ["hi", "boom", "hang"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_foreign_id_is_continued_as_a_missing_one(
    alice: httpx.Client, bob: httpx.Client, text: str, *, streamed: bool
) -> None:
    """R-122: its owner is told what is wrong with it, if anything is; nobody else is."""
    states = {"hi": "stored", "boom": "failed", "hang": "running"}

    def continued(http: httpx.Client, previous_id: str) -> httpx.Response:
        body = {"model": "scripted", "input": "x", "previous_response_id": previous_id, "stream": streamed}
        return http.post("/v1/responses", json=body)

    with one(alice, states[text]) as response_id:
        foreign = continued(bob, response_id)

        assert told(foreign, response_id) == told(continued(bob, MISSING), MISSING)
        assert refused(foreign, 404)["code"] == "previous_response_not_found"
        assert continued(alice, response_id).status_code == (200 if text == "hi" else 400)


def referring(item_id: str) -> Json:
    """A request that refers to that item."""
    return {
        "model": "scripted",
        "input": [{"type": "item_reference", "id": item_id}, {"role": "user", "content": "hi"}],
    }


def test_a_foreign_item_is_referred_to_as_a_missing_one(alice: httpx.Client, bob: httpx.Client) -> None:
    item_id = create(alice, "think")["output"][0]["id"]

    foreign = bob.post("/v1/responses", json=referring(item_id))
    missing = bob.post("/v1/responses", json=referring(MISSING_ITEM))

    assert told(foreign, item_id) == told(missing, MISSING_ITEM)
    assert 400 <= foreign.status_code < 500
    assert alice.post("/v1/responses", json=referring(item_id)).status_code == 200


def test_an_item_of_a_running_foreign_turn_is_missing_too(alice: httpx.Client, bob: httpx.Client) -> None:
    """What its owner finds in memory, because its turn is not over, is not there for others."""
    with begun(alice, "ponder") as item:
        foreign = bob.post("/v1/responses", json=referring(item["id"]))
        missing = bob.post("/v1/responses", json=referring(MISSING_ITEM))
        owners = alice.post("/v1/responses", json=referring(item["id"]))

    assert told(foreign, item["id"]) == told(missing, MISSING_ITEM)
    assert (foreign.status_code, owners.status_code) == (404, 200)


def test_a_response_belongs_to_its_owner_whichever_key_it_has(
    keyed: KeyedServer, alice: httpx.Client
) -> None:
    """D-18: keys are an owner's, responses are not a key's; and another role is another key."""
    response_id = create(alice, "hi")["id"]
    _, another = keyed.file.add("alice", Role.CLIENT, now_s=0)
    _, auditors = keyed.file.add("alice", Role.AUDITOR, now_s=0)

    path = f"/v1/responses/{response_id}"
    assert keyed.send("GET", path, another).status == 200
    assert keyed.send("GET", path, auditors).code == "role_not_allowed"
    with keyed.client("alice") as http:
        assert create(http, "x", previous_response_id=response_id)["previous_response_id"] == response_id


def counts(answer: httpx.Response) -> Json:
    """What an answer tells of warm caches."""
    assert answer.status_code == 200, answer.text
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name in ("x-session-cache", "x-cached-tokens")
    }
    usage: Json = answer.json()["usage"]
    return headers | {name: value for name, value in usage.items() if not name.endswith("_ms")}


def test_the_same_prompt_of_two_owners_leaves_no_trace_of_the_other(
    alice: httpx.Client, bob: httpx.Client
) -> None:
    """D-18, D-24, D-28: no token, no header, no count; not even for the same key and salt."""
    body = {
        "model": "scripted",
        "input": "the same words " * 40,
        "prompt_cache_key": "the same key",
        "cache_salt": "the same salt",
    }

    first, again = (counts(alice.post("/v1/responses", json=body)) for _ in range(2))
    of_bob = counts(bob.post("/v1/responses", json=body))
    of_bob_again = counts(bob.post("/v1/responses", json=body))

    assert again["input_tokens_details"]["cached_tokens"] > 0
    assert of_bob == first != again
    assert of_bob_again == again


def test_two_owners_at_the_same_scripted_prompts_get_their_own_only(keyed: KeyedServer) -> None:
    """Conversations of both at the same time, word for word the same but for the metadata."""

    def talk(name: str) -> list[str]:
        previous: str | None = None
        ids = []
        with keyed.client(name) as http:
            for _ in range(8):
                body = create(http, "hi", previous_response_id=previous, metadata={"who": name})
                assert (body["metadata"], body["previous_response_id"]) == ({"who": name}, previous)
                previous = body["id"]
                ids.append(body["id"])
            assert len(stream(http, "hi", previous_response_id=previous)) > 0
        return ids

    with ThreadPoolExecutor(2) as pool:
        of_alice, of_bob = pool.map(talk, ["alice", "bob"])

    for name, own, others in (("alice", of_alice, of_bob), ("bob", of_bob, of_alice)):
        with keyed.client(name) as http:
            assert {http.get(f"/v1/responses/{each}").json()["metadata"]["who"] for each in own} == {name}
            assert {http.get(f"/v1/responses/{each}").status_code for each in others} == {404}


# ── what a look-up costs ──────────────────────────────────────────────────────────────────────────


class _Reader:
    """A reader that counts how often it is asked for a response."""

    def __init__(self, events: list[Recorded]) -> None:
        self._events = events
        self.reads = 0

    def dated(self, response_id: str, *, owner: str | None = None) -> Future[tuple[list[Recorded], int]]:
        """What it has of the owner's."""
        assert response_id == ID
        self.reads += 1
        answer: Future[tuple[list[Recorded], int]] = Future()
        answer.set_result((self._events, CREATED.expires_at) if owner == CREATED.owner else ([], 0))
        return answer


STATES = ["nothing", "live", "write", "marker"]


def pending_state(given: Given, state: str) -> None:
    """Put what is under way for `local`, the owner of the response, into that state."""
    match state:
        case "live":
            given.live.add(LiveTurn(Response(CREATED), Framer()))
        case "write":
            given.write()
        case "marker":
            given.marker()


@pytest.mark.parametrize("rows", [pytest.param(ROWS, id="stored"), pytest.param(NOTHING, id="not stored")])
@pytest.mark.parametrize("state", STATES)
async def test_a_foreign_chain_costs_one_look_up_whatever_is_under_way(state: str, rows: Groups) -> None:
    """D-18: nothing is waited for, and no marker lives on because a stranger asks."""
    given = Given(rows)
    pending_state(given, state)

    assert await given.answer("bob") == 404

    assert given.reader.look_ups == 1


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(len(ROWS[0]), id="stored"),
        pytest.param(len(ROWS[0]) - 1, id="end not stored"),
        pytest.param(0, id="not stored"),
    ],
)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("reading", ["response", "story", "events"])
async def test_a_foreign_response_costs_one_read_whatever_is_under_way(
    reading: str, stored: int, state: str
) -> None:
    """D-18: one read and 404; its owner gets what there is, be it from memory."""
    given = Given()
    pending_state(given, state)
    reader = _Reader(ROWS[0][:stored])
    retrieval = Retrieval(cast(Log, reader), given.live, given.pending, StoppedClock())

    with pytest.raises(ResponseNotFoundError):
        await getattr(retrieval, reading)(ID, "bob")

    assert reader.reads == 1
    if stored == len(ROWS[0]):
        assert await getattr(retrieval, reading)(ID, LOCAL_OWNER)


@pytest.mark.parametrize("state", STATES)
async def test_a_store_that_fails_fails_for_foreign_ids_as_for_others(state: str) -> None:
    """R-123: or whoever waits for a failure would learn what is there."""
    given = Given(BROKEN)
    pending_state(given, state)

    assert await given.answer("bob") == 500
    assert given.reader.look_ups == 1

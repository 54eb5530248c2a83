"""The shares of owners over HTTP: who has too much under way is told to come back, and nobody else (D-18)."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any, cast

import httpx
import pytest

from tests.app.http.keyed import KeyedServer, keyed_serving
from tests.app.http.test_turns import create, refused, stream
from tests.app.scripts import HELLO, entry
from tests.waiting import received, until
from turnlog.domain.owners import Role

SCRIPT: dict[str, Any] = {
    "concurrency": 1,
    "turns": [entry("hang", {"text": "Hel"}, {"hang": True}), entry("boom", {"raise": "it broke"}), HELLO],
}


@pytest.fixture
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server that runs one turn at a time and lets an owner have three streams and two turns waiting."""
    with keyed_serving(
        tmp_path_factory.mktemp("shares"),
        SCRIPT,
        TURNLOG_MAX_STREAMS_PER_OWNER="3",
        TURNLOG_MAX_QUEUED_TURNS_PER_OWNER="2",
    ) as running:
        yield running


def asking(text: str) -> dict[str, Any]:
    """A request for a stream."""
    return {"model": "scripted", "input": text, "stream": True}


def opened(reading: ExitStack, http: httpx.Client, text: str, sign: str) -> None:
    """Open a stream that stays open, and read it as far as `sign`."""
    answer = reading.enter_context(http.stream("POST", "/v1/responses", json=asking(text)))
    assert answer.status_code == 200
    chunks = cast("Generator[str]", answer.iter_text())
    reading.callback(chunks.close)  # dropped, it would close the connection at once
    received(lambda: next(chunks, ""), sign)


def test_an_owner_beyond_its_share_is_told_to_come_back_and_others_are_not(keyed: KeyedServer) -> None:
    """D-18: 429 `owner_limit_exceeded` with `Retry-After`, for new turns, replays and streams read again."""
    _, operators = keyed.file.add("alice", Role.OPERATOR, now_s=0)
    operating = {"Authorization": f"Bearer {operators}"}
    with keyed.client("alice") as alice, keyed.client("bob") as bob:
        earlier = create(alice, "hi")["id"]
        failed = alice.post("/v1/responses", json={"model": "scripted", "input": "boom"})
        replay = f"/v1/responses/{failed.headers['x-response-id']}/replay"
        with ExitStack() as reading:
            opened(reading, alice, "hang", "output_text.delta")
            opened(reading, alice, "hi", "response.created")
            opened(reading, alice, "hi", "response.created")

            one_more = {
                "Stream limit reached (3 per owner).": [
                    alice.post("/v1/responses", json=asking("hi")),
                    alice.get(f"/v1/responses/{earlier}?stream=true"),
                    alice.post(replay, json={"stream": True}, headers=operating),
                ],
                "Queued turn limit reached (2 per owner).": [
                    alice.post("/v1/responses", json={"model": "scripted", "input": "hi"})
                ],
            }
            for said, answers in one_more.items():
                for answer in answers:
                    error = refused(answer, 429)
                    assert (error["type"], error["code"]) == ("rate_limit_error", "owner_limit_exceeded")
                    assert said in error["message"]
                    after_s = int(answer.headers["retry-after"])
                    assert 1 <= after_s <= 120
                    assert error["message"].endswith(f"Retry after {after_s}s.")
            # What takes no share is open to her, and all is to bob.
            assert alice.get(f"/v1/responses/{earlier}").status_code == 200
            opened(reading, bob, "hi", "response.created")

        # Her readers are gone, and with them their turns.
        again = until(lambda: _taken(alice.post("/v1/responses", json={"model": "scripted", "input": "hi"})))
        assert again["status"] == "completed"
        assert until(lambda: alice.get(f"/v1/responses/{earlier}?stream=true").status_code == 200)
        assert stream(bob, "hi").endswith(b"data: [DONE]\n\n")


def _taken(answer: httpx.Response) -> dict[str, Any]:
    """The response; nothing if the answer is to come back later."""
    assert answer.status_code in (200, 429), answer.text
    body: dict[str, Any] = answer.json()
    return body if answer.status_code == 200 else {}

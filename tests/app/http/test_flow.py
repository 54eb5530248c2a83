"""Large bodies: what is in flight is counted and bounded, and leaves as its client takes it."""

from types import SimpleNamespace
from typing import Any

import pytest

from turnlog.adapters.openai.frames import PIECE_BYTES
from turnlog.app.http.flow import Flow
from turnlog.app.http.request_log import Notes
from turnlog.domain.budgets import SharedBudget
from turnlog.domain.errors import OwnersShareError
from turnlog.domain.owners import Caller, Role

BODY = b"x" * (3 * PIECE_BYTES + 1)


def budget(limit: int) -> SharedBudget:
    """What several owners share."""
    return SharedBudget("bytes_in_flight", limit, lambda: True)


async def served(in_flight: SharedBudget, body: bytes, answer: bytes, owner: str = "ada") -> list[Any]:
    """What is sent for a request, and before each message what is in flight."""
    sent: list[Any] = []
    refused: list[str] = []

    async def application(_: Any, receive: Any, send: Any) -> None:
        await receive()
        length = str(len(answer)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append((in_flight.held_by(owner), message))

    scope: Any = {"type": "http", "user": Caller(owner, frozenset({Role.CLIENT})), "turnlog.notes": Notes()}
    metrics = SimpleNamespace(refused=refused.append)
    service: Any = SimpleNamespace(in_flight=in_flight, metrics=metrics)
    await Flow(application, service)(scope, receive, send)
    assert refused == [code for code in ("owner_limit_exceeded",) if sent[0][1]["status"] == 429]
    return sent


async def test_a_request_and_its_answer_are_in_flight_until_it_is_over() -> None:
    """T2-20: and a long answer is sent in pieces, so that a connection buffers one of them at most."""
    in_flight = budget(10 * len(BODY))

    (_, start), *rest = await served(in_flight, b"y" * 10, BODY)

    assert start["type"] == "http.response.start"
    assert {held for held, _ in rest} == {len(BODY) + 10}
    assert b"".join(message["body"] for _, message in rest) == BODY
    assert [len(message["body"]) for _, message in rest] == [PIECE_BYTES] * 3 + [1]
    assert [message["more_body"] for _, message in rest] == [True] * 3 + [False]
    assert in_flight.total == 0


async def test_an_empty_answer_has_its_end() -> None:
    _, (_, end) = await served(budget(100), b"", b"")

    assert (bytes(end["body"]), end["more_body"]) == (b"", False)


async def test_an_owner_has_as_much_in_flight_as_is_left_over() -> None:
    """T2-20, D-18: and what is refused was not counted."""
    in_flight = budget(100)
    in_flight.resize("ada", 0, 40)

    with pytest.raises(OwnersShareError):
        await served(in_flight, b"y" * 20, b"")
    for body, answer in ((b"", b"y" * 20), (b"y" * 5, b"y" * 6)):
        (_, start), (_, told) = await served(in_flight, body, answer)
        assert start["status"] == 429
        assert b"Bytes in flight limit reached" in told["body"]
    await served(in_flight, b"y" * 30, b"y" * 10, "bob")

    assert (in_flight.total, in_flight.reached) == (40, 3)

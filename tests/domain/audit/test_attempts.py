"""Which requests are the same, and which responses are attempts at one."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.audit.rows import FAILED
from tests.domain.audit.rows import row as usual
from tests.domain.stories import CREATED
from turnlog.domain.audit.attempts import attempts, attempts_with, request_digests
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.events import IDEMPOTENCY_KEY, Sampling
from turnlog.domain.messages import Message

digests = partial(request_digests, counter="counter")


def test_the_same_request_has_the_same_body_whoever_took_it_and_when() -> None:
    again = replace(
        CREATED,
        at_ms=9,
        response_id="resp_b",
        sampling=replace(CREATED.sampling, seed=8),
        expires_at=3000,
        instance_id=2,
        boot_id="other",
        retry_keys={"counter": "1"},
        body_sha256="of the whole body",
        replay_of="resp_a",
    )

    assert digests(again) == digests(CREATED)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "large"},
        {"input": (Message("user", "ho"),)},
        {"owner": "bob"},
        {"instructions": "be kind"},
        {"previous_response_id": "resp_0"},
        {"tools": ({"type": "function", "name": "look"},)},
        {"metadata": {"k": "v"}},
        {"sampling": Sampling(temperature=0.8, top_p=0.95, seed=7)},
    ],
)
def test_another_request_has_another_body(change: Any) -> None:
    assert digests(replace(CREATED, **change))[1] != digests(CREATED)[1]


def test_an_idempotency_key_stands_for_itself_and_other_keys_for_the_same_body() -> None:
    def retry(text: str, keys: dict[str, str]) -> str | None:
        return digests(replace(CREATED, input=(Message("user", text),), retry_keys=keys))[0]

    assert retry("a", {IDEMPOTENCY_KEY: "1"}) == retry("b", {IDEMPOTENCY_KEY: "1", "counter": "1"})
    assert retry("a", {IDEMPOTENCY_KEY: "1"}) != retry("a", {IDEMPOTENCY_KEY: "2"})
    assert retry("a", {"other": "1"}) == retry("a", {"other": "1"})
    assert retry("a", {"other": "1"}) != retry("b", {"other": "1"})
    assert retry("a", {"counter": "1"}) is None


def row(name: str, at_ms: int, **fields: Any) -> AuditRow:
    """A failed response that ended a second after it was created."""
    told = {**FAILED, "created_ms": at_ms, "ended_ms": at_ms + 1000, "body_digest": "body"}
    return usual(name, **{**told, **fields})


@pytest.mark.parametrize(
    ("rows", "groups"),
    [
        ([row("a", 0), row("b", 61_000)], ["ab"]),
        ([row("a", 0), row("b", 61_001)], ["a", "b"]),
        ([row("b", 5), row("a", 0)], ["ab"]),
        ([row("a", 0), row("b", 2000), row("c", 4000)], ["abc"]),
        ([row("a", 0), row("b", 2000, reason=None), row("c", 4000)], ["ab", "c"]),
        ([row("a", 0, reason=None, ended_ms=None), row("b", 2000)], ["a", "b"]),
        ([row("a", 0), row("b", 2000, body_digest="other")], ["a", "b"]),
        ([row("a", 0, retry_digest="k"), row("b", 999_999, retry_digest="k", body_digest="other")], ["ab"]),
        ([row("a", 0), row("b", 2000, replay_of="a"), row("c", 3000)], ["ac", "b"]),
        ([row("a", 0, body_digest=None), row("b", 1, body_digest=None)], ["a", "b"]),
    ],
)
def test_what_a_client_sends_again_after_a_failure_is_an_attempt(
    rows: list[AuditRow], groups: list[str]
) -> None:
    found = attempts(rows)

    assert sorted("".join(each.response_id for each in group) for group in found) == groups


def test_the_attempts_with_a_response_are_those_of_its_group() -> None:
    rows = [row("a", 0), row("b", 2000), row("c", 0, body_digest="other")]

    found = [[each.response_id for each in attempts_with(name, rows)] for name in "abcd"]

    assert found == [["a", "b"], ["a", "b"], ["c"], []]

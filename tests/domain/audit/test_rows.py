"""What an auditor can ask for, by what text a turn is found, and which responses are attempts at one."""

from typing import Any

import pytest
from msgspec.structs import replace

from turnlog.domain.audit.rows import (
    AuditFilter,
    AuditRow,
    attempts,
    attempts_with,
    metadata_texts,
    request_digests,
    searchable_text,
)
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import ItemClosed, ResponseCreated, Sampling
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.response import fold

CREATED = ResponseCreated(
    at_ms=1,
    response_id="resp_a",
    model="smol",
    input=(Message("user", "hi"),),
    sampling=Sampling(temperature=0.7, top_p=0.95, seed=7),
    expires_at=2000,
    instance_id=1,
    boot_id="boot",
    owner="ada",
)


@pytest.mark.parametrize(
    ("wanted", "param", "message"),
    [
        ({"state": "done"}, "state", "state must be one of created, in_progress, committed"),
        ({"status": "persisted"}, "status", "status must be one of queued, in_progress, completed"),
        ({"reason": "bad luck"}, "reason", "reason must be one of error, client_abort"),
        ({"order": "up"}, "order", "order must be one of asc, desc"),
        ({"q": "ab"}, "q", "q must have at least 3 characters"),
        ({"q": "\ud800abc"}, "q", "half a surrogate pair"),
        ({"metadata": {"k": "\ud800"}}, "metadata.k", "half a surrogate pair"),
        ({"limit": 0}, "limit", "limit must be from 1 to 1000"),
        ({"limit": 1001}, "limit", "limit must be from 1 to 1000"),
        ({"min_tokens": 2**63}, "min_tokens", "min_tokens is out of range"),
    ],
)
def test_a_condition_no_response_can_meet_is_refused(wanted: Any, param: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as refused:
        AuditFilter(**wanted)

    assert refused.value.param == param


def test_a_turn_is_found_by_what_was_said_on_both_sides() -> None:
    spoken = (
        Message("user", "question"),
        Message("assistant", "", reasoning="thought", tool_calls=(ToolCall("c", "look", '{"a":1}'),)),
        Message("tool", "found\0it", call_id="c"),
    )
    items: list[Item] = [
        ReasoningItem("rs_1", "pondering"),
        MessageItem("msg_1", "completed", "answer"),
        FunctionCallItem("fc_1", "c1", "call", '{"b":2}', "completed"),
        CustomCallItem("ctc_1", "c2", "run", "ls -l", "completed"),
    ]
    unlisted = ItemClosed(
        at_ms=1, output_index=9, item=MessageItem("msg_2", "completed", "draft"), listed=False
    )
    closed = [ItemClosed(at_ms=1, output_index=n, item=item) for n, item in enumerate(items)]

    text = searchable_text(fold([replace(CREATED, input=spoken, instructions="be kind"), *closed, unlisted]))

    assert text.splitlines() == [
        "question",
        "thought",
        'look {"a":1}',
        "found it",
        "pondering",
        "answer",
        'call {"b":2}',
        "run ls -l",
    ]


def test_metadata_is_text_and_what_is_not_is_json() -> None:
    texts = metadata_texts({"a": "x", "b": 600, "c": True, "d": None, "e": {"f": [1]}})

    assert texts == {"a": "x", "b": "600", "c": "true", "d": "null", "e": '{"f":[1]}'}


def test_the_same_request_has_the_same_body_whoever_took_it_and_when() -> None:
    again = replace(
        CREATED,
        at_ms=9,
        response_id="resp_b",
        sampling=replace(CREATED.sampling, seed=8),
        expires_at=3000,
        instance_id=2,
        boot_id="other",
        retry_keys={"x-stainless-retry-count": "1"},
        replay_of="resp_a",
    )

    assert request_digests(again) == request_digests(CREATED)


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
    assert request_digests(replace(CREATED, **change))[1] != request_digests(CREATED)[1]


def test_an_idempotency_key_stands_for_itself_and_other_keys_for_the_same_body() -> None:
    def retry(text: str, **keys: str) -> str | None:
        named = {name.replace("_", "-"): key for name, key in keys.items()}
        return request_digests(replace(CREATED, input=(Message("user", text),), retry_keys=named))[0]

    assert retry("a", idempotency_key="1") == retry("b", idempotency_key="1")
    assert retry("a", idempotency_key="1") != retry("a", idempotency_key="2")
    assert retry("a", x_client_request_id="1") == retry("a", x_client_request_id="1")
    assert retry("a", x_client_request_id="1") != retry("b", x_client_request_id="1")
    assert retry("a", x_stainless_retry_count="1") is None


def row(name: str, at_ms: int, **fields: Any) -> AuditRow:
    """A failed response that ended a second after it was created."""
    common: dict[str, Any] = dict.fromkeys(AuditRow.__struct_fields__)
    told = {"response_id": name, "created_ms": at_ms, "ended_ms": at_ms + 1000, "reason": "error"}
    return AuditRow(**{**common, **told, "body_digest": "body", **fields})


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

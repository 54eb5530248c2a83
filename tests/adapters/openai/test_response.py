"""The response object as a reading of a response's state (D-03, D-05)."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.openai.wire import check_response
from tests.domain.stories import COMMITTED, CREATED, FAILED, NOON_MS, STARTED
from turnlog.adapters.openai.response import (
    echoed_fields,
    item_object,
    opening_fields,
    response_object,
    text_part,
    usage_object,
)
from turnlog.domain.events import FailureReason, ResponseEvent
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, Logprob, MessageItem, ReasoningItem
from turnlog.domain.response import fold
from turnlog.domain.usage import Timing, Usage

TEXT_PART = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            MessageItem("msg_1", "completed", "Hi"),
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [TEXT_PART],
            },
        ),
        (
            MessageItem("msg_1", "completed", ""),
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [TEXT_PART | {"text": ""}],
            },
        ),
        (
            MessageItem("msg_1", "incomplete", ""),
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "incomplete", "content": []},
        ),
        (
            ReasoningItem("rs_1", "hm"),
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        ),
        (
            FunctionCallItem("fc_1", "call_a", "add", "{}", "completed"),
            {
                "id": "fc_1",
                "type": "function_call",
                "status": "completed",
                "call_id": "call_a",
                "name": "add",
                "arguments": "{}",
            },
        ),
        (
            CustomCallItem("ctc_1", "call_a", "patch", "*** x", "completed", "ns"),
            {
                "id": "ctc_1",
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "call_a",
                "name": "patch",
                "input": "*** x",
                "namespace": "ns",
            },
        ),
    ],
)
def test_an_item_has_the_form_of_its_type(item: Item, expected: dict[str, Any]) -> None:
    """R-252, R-253, R-254, R-319."""
    assert item_object(item) == expected


def test_a_message_that_is_not_listed_shows_no_content() -> None:
    """R-286."""
    assert item_object(MessageItem("msg_1", "completed", ""), listed=False)["content"] == []


def test_log_probabilities_are_told_with_the_bytes_of_their_tokens() -> None:
    part = item_object(MessageItem("msg_1", "completed", "é", (Logprob("é", -0.5, (("e", -1.5),)),)))

    assert part["content"][0]["logprobs"] == [
        {
            "token": "é",
            "logprob": -0.5,
            "bytes": [195, 169],
            "top_logprobs": [{"token": "e", "logprob": -1.5, "bytes": [101]}],
        }
    ]


def test_a_token_that_is_a_part_of_a_character_has_its_own_bytes() -> None:
    """T2-12: not those of the sign that stands for it."""
    part = Logprob("\ufffd", -0.5, (("\ufffd", -0.5), ("e", -1.5)), b"\xc3", (b"\xc3", b""))

    [told] = text_part("é", [part])["logprobs"]

    assert (told["bytes"], [each["bytes"] for each in told["top_logprobs"]]) == ([0xC3], [[0xC3], [0x65]])


def test_a_response_that_has_just_begun_is_in_progress_and_empty() -> None:
    """R-263."""
    opening = check_response(opening_fields(CREATED) | echoed_fields(CREATED))

    assert (opening["status"], opening["output"], opening["output_text"]) == ("in_progress", [], "")
    assert opening["usage"]["total_tokens"] == 0
    assert opening["completed_at"] is None


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([CREATED], "queued"),
        ([CREATED, STARTED], "in_progress"),
        ([CREATED, STARTED, COMMITTED], "completed"),
        ([CREATED, STARTED, replace(COMMITTED, status="incomplete")], "incomplete"),
        ([CREATED, STARTED, FAILED], "failed"),
        ([CREATED, replace(FAILED, reason="cancelled")], "cancelled"),
    ],
)
def test_the_status_is_told_in_the_apis_words(events: list[ResponseEvent], status: str) -> None:
    """R-249, R-250."""
    body = check_response(response_object(fold(events)))

    assert body["status"] == status
    assert (body["completed_at"] is None) == (status not in ("completed", "incomplete"))
    assert (body["error"] is None) == (status not in ("failed", "cancelled"))


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("error", "server_error"),
        ("finish_reason_error", "server_error"),
        ("stream_exhausted", "server_error"),
        ("client_abort", "client_abort"),
        ("cancelled", "cancelled"),
        ("server_restart", "server_restart"),
        ("engine_timeout", "engine_timeout"),
        ("engine_crashed", "engine_crashed"),
        ("shutting_down", "shutting_down"),
        ("model_changed", "model_changed"),
        ("constraint_lost", "constraint_lost"),
        ("storage_full", "storage_full"),
    ],
)
def test_a_failure_has_a_stable_code_and_keeps_its_reason(reason: FailureReason, code: str) -> None:
    """R-320, R-322, D-05."""
    failed = replace(FAILED, reason=reason, usage=Usage(input_tokens=3, output_tokens=2))

    body = response_object(fold([CREATED, STARTED, failed]))

    assert body["error"] == {"code": code, "message": "it broke"}
    assert body["incomplete_details"] == {"reason": reason}
    # What was stats stays visible.
    assert body["usage"]["total_tokens"] == 5


def test_the_usage_always_has_both_details_and_only_the_times_that_are_known() -> None:
    """R-341, R-342, R-345, D-03, G-142."""
    assert usage_object(Usage(input_tokens=3, output_tokens=2), Timing()) == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }


def test_the_times_of_a_turn_are_told_beside_its_usage() -> None:
    """R-343, R-084."""
    usage = Usage(input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2)
    timing = Timing(
        queue_ms=1.0,
        pre_inference_ms=2.0,
        first_token_ms=100.0,
        prefill_tokens_per_s=60.0,
        decode_tokens_per_s=8.0,
    )

    told = usage_object(usage, timing)

    assert {name: told[name] for name in told if not name.endswith(("tokens", "details"))} == {
        "time_to_first_token_ms": 100.0,
        "server_time_to_first_token_ms": 100.0,
        "server_total_time_to_first_token_ms": 102.0,
        "prefill_tokens_per_second": 60.0,
        "server_prefill_tokens_per_second": 60.0,
        "decode_tokens_per_second": 8.0,
        "server_decode_tokens_per_second": 8.0,
        "server_inference_elapsed_ms": 600.0,
        "server_queue_ms": 1.0,
        "server_pre_inference_ms": 2.0,
    }
    assert (told["prefill_input_tokens"], told["cached_prefix_tokens"]) == (6, 4)
    assert told["input_tokens_details"]["cached_tokens"] == 4
    assert told["output_tokens_details"] == {"reasoning_tokens": 2}


@pytest.mark.parametrize(
    ("timing", "output_tokens", "elapsed"),
    [
        (Timing(), 5, None),
        (Timing(first_token_ms=100.0), 5, None),
        (Timing(first_token_ms=100.0), 1, 100.0),
        (Timing(first_token_ms=100.0, decode_tokens_per_s=10.0), 2, 200.0),
    ],
)
def test_the_time_of_inference_is_told_if_it_can_be_known(
    timing: Timing, output_tokens: int, elapsed: float | None
) -> None:
    """R-343."""
    told = usage_object(Usage(output_tokens=output_tokens), timing)

    assert told.get("server_inference_elapsed_ms") == elapsed


def test_created_at_is_the_second_in_which_the_response_was_made() -> None:
    """R-249, R-263."""
    assert response_object(fold([CREATED]))["created_at"] == NOON_MS // 1000

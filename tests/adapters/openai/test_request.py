"""Bodies of `POST /v1/responses`: what is accepted, and what is refused by the name of the field."""

import json
from typing import Any

import pytest

from adapters.openai.request import MAX_JSON_DEPTH, decode_request
from domain.errors import InvalidRequestError
from domain.messages import Message
from domain.request import TurnRequest

LEAST: dict[str, Any] = {"model": "tiny", "input": "hi"}


def decode(**fields: Any) -> TurnRequest:
    """The command of a body with these fields added to the least there can be."""
    return decode_request(json.dumps(LEAST | fields).encode(), {})


def refusal(body: bytes) -> InvalidRequestError:
    """How the body is refused."""
    with pytest.raises(InvalidRequestError) as caught:
        decode_request(body, {})
    return caught.value


def test_the_least_request_asks_for_one_stored_turn_with_defaults() -> None:
    """R-158."""
    assert decode() == TurnRequest(model="tiny", input=(Message("user", "hi"),))


def test_a_request_says_all_that_a_text_turn_can_be_told() -> None:
    body = LEAST | {
        "instructions": "Be kind.",
        "previous_response_id": "resp_1",
        "stream": True,
        "store": False,
        "max_output_tokens": 5.0,
        "temperature": 0,
        "top_p": 1,
        "seed": 7,
        "metadata": {"retention_seconds": 60, "team": "a"},
        "client_metadata": {"unknown": "fields are ignored"},
    }

    request = decode_request(json.dumps(body).encode(), {"idempotency-key": "k", "accept": "x"})

    assert request == TurnRequest(
        model="tiny",
        input=(Message("user", "hi"),),
        instructions="Be kind.",
        previous_response_id="resp_1",
        stream=True,
        store=False,
        max_output_tokens=5,
        temperature=0.0,
        top_p=1.0,
        seed=7,
        metadata={"retention_seconds": 60, "team": "a"},
        retention_s=60,
        retry_keys={"idempotency-key": "k"},
    )


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"", None, "invalid_json"),
        (b"{", None, "invalid_json"),
        (b'{"a": NaN}', None, "invalid_json"),
        (b'{"a": "\xff"}', None, "invalid_json"),
        (b'{"a": "\\ud800"}', None, "invalid_json"),
        (b"[" * 5_000 + b"]" * 5_000, None, "json_too_deep"),
        (b"null", "body", "invalid_request"),
        (b"[]", "body", "invalid_request"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes, param: str | None, code: str) -> None:
    """R-002, R-012, D-06."""
    error = refusal(body)

    assert (error.param, error.code) == (param, code)


@pytest.mark.parametrize(("levels", "refused"), [(MAX_JSON_DEPTH - 1, False), (MAX_JSON_DEPTH + 1, True)])
def test_json_that_is_nested_too_deep_is_refused(levels: int, *, refused: bool) -> None:
    """D-06."""
    nested: Any = 1
    for _ in range(levels - 1):
        nested = {"a": nested}

    body = json.dumps(LEAST | {"metadata": nested}).encode()

    if refused:
        assert refusal(body).code == "json_too_deep"
    else:
        assert decode_request(body, {}).metadata == nested


NOT_INTEGERS = [0, -1, 1.5, "5", True, 2**31, [], {}]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("model", [None, "", 0, False, 7, ["tiny"]]),
        ("input", [None, 7, True, {}, "", "  \n", []]),
        ("max_output_tokens", NOT_INTEGERS),
        ("temperature", [-0.1, 2.1, "1", True, []]),
        ("top_p", [-0.1, 1.1, "1", True, {}]),
        ("seed", [-1, 2**64, 1.5, "7", True]),
        ("previous_response_id", [7, ["resp_1"], {"id": "resp_1"}]),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field: str, values: list[Any]) -> None:
    """R-013 … R-018, D-11, G-001, G-002, field reports B14, A9."""
    for value in values:
        error = refusal(json.dumps(LEAST | {field: value}).encode())
        assert (error.param, field in error.message or field == "input") == (field, True)


@pytest.mark.parametrize("field", ["model", "input"])
def test_a_missing_field_is_refused_by_name(field: str) -> None:
    """R-013, R-015."""
    body = {name: value for name, value in LEAST.items() if name != field}

    assert refusal(json.dumps(body).encode()).param == field


def test_the_first_failure_in_the_order_of_the_specification_is_told() -> None:
    """R-011."""
    body = b'{"temperature": 9, "max_output_tokens": 0, "input": 7, "model": ""}'

    assert refusal(body).param == "model"
    assert refusal(body.replace(b'"model": ""', b'"model": "x"')).param == "input"
    assert refusal(body.replace(b'"model": ""', b'"model": "x"').replace(b"7", b'"x"')).param == (
        "max_output_tokens"
    )


@pytest.mark.parametrize("retention", [59, 7_776_001, 1.5, "600", True, []])
def test_retention_out_of_range_is_refused_with_the_sentence_that_clients_parse(retention: Any) -> None:
    """R-023, G-003."""
    error = refusal(json.dumps(LEAST | {"metadata": {"retention_seconds": retention}}).encode())

    assert error.message == "metadata.retention_seconds must be an integer in [60, 7776000]"
    assert error.param == "metadata.retention_seconds"


@pytest.mark.parametrize(
    ("retention", "expected"), [(None, None), (60, 60), (7_776_000, 7_776_000), (60.0, 60)]
)
def test_retention_within_range_is_taken(retention: Any, expected: int | None) -> None:
    """R-023."""
    assert decode(metadata={"retention_seconds": retention}).retention_s == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"instructions": None}, {"instructions": None}),
        ({"instructions": 7}, {"instructions": None}),
        ({"instructions": ""}, {"instructions": ""}),
        ({"previous_response_id": ""}, {"previous_response_id": None}),
        ({"store": None}, {"store": True}),
        ({"store": 0}, {"store": True}),
        ({"stream": 1}, {"stream": True}),
        ({"stream": None}, {"stream": False}),
        ({"metadata": "none"}, {"metadata": {}}),
        ({"max_output_tokens": None}, {"max_output_tokens": None}),
    ],
)
def test_fields_without_a_rule_of_their_own_are_read_leniently(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    """R-017, R-020, R-021, R-150, G-005."""
    request = decode(**fields)

    assert {name: getattr(request, name) for name in expected} == expected


def test_items_are_messages_with_a_string_or_with_text_parts() -> None:
    """R-159, R-160, R-162, field reports B1, B4, B6."""
    request = decode(
        input=[
            {"role": "developer", "content": "Rules."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "b"}, {"type": "refusal", "refusal": "c"}],
            },
        ]
    )

    assert request.input == (
        Message("system", "Rules."),
        Message("user", "a"),
        Message("assistant", "bc"),
    )


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ("hi", "input[1] must be an object"),
        ({"role": "robot", "content": "x"}, "input[1].role"),
        ({"content": "x"}, "input[1].role"),
        ({"role": "user"}, "input[1].content"),
        ({"role": "user", "content": [7]}, "input[1].content[0]"),
        ({"role": "user", "content": [{"type": "sound"}]}, "input[1].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[1].content[0].text"),
        ({"role": "user", "content": [{"type": "input_text", "text": 7}]}, "input[1].content[0].text"),
    ],
)
def test_a_wrong_item_is_refused_by_its_place(item: Any, place: str) -> None:
    """R-159, R-160, R-162."""
    error = refusal(json.dumps(LEAST | {"input": [{"role": "user", "content": "a"}, item]}).encode())

    assert (error.param, place in error.message) == ("input", True)


def test_empty_input_is_fine_when_there_is_something_to_go_on_from() -> None:
    """D-11, R-172."""
    assert decode(input=[], previous_response_id="resp_1").input == ()

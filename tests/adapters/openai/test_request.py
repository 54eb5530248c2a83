"""Bodies of `POST /v1/responses`: what must be there, what is refused first, and what is read leniently."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.openai.asking import LEAST, SAY, decode, refusal, refused
from turnlog.adapters.openai.forms import (
    ITEMS,
    TOOLS,
    JsonSchemaFormat,
    Part,
    ReasoningOptions,
    RequestBody,
    TextOptions,
)
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.request import decode_request
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import Echoed, Sampling
from turnlog.domain.messages import Message
from turnlog.domain.request import DEFAULT_SAMPLING, TurnRequest

MOST_LEVELS = RequestLimits().json_depth


def test_the_least_request_asks_for_one_stored_turn_with_defaults() -> None:
    """R-158."""
    assert decode() == TurnRequest(model="tiny", input=(Message("user", "hi"),))


def test_a_request_says_all_that_a_text_turn_can_be_told() -> None:
    """R-018, R-173."""
    body = LEAST | {
        "instructions": "Be kind.",
        "previous_response_id": "resp_1",
        "stream": True,
        "stream_options": {"include_obfuscation": True},
        "store": False,
        "max_output_tokens": 5.0,
        "temperature": 0,
        "top_p": 0.5,
        "seed": 7,
        "top_k": 5,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "stop": "X",
        "top_logprobs": 3,
        "include": ["message.output_text.logprobs"],
        "parallel_tool_calls": False,
        "truncation": "auto",
        "prompt_cache_key": "conversation",
        "cache_salt": "salt",
        "max_tool_calls": 4,
        "safety_identifier": "somebody",
        "metadata": {"retention_seconds": 60, "team": "a"},
        "client_metadata": {"unknown": "fields are ignored"},
    }

    request = decode_request(json.dumps(body).encode(), {"x-client-request-id": "k", "accept": "x"})

    assert request == TurnRequest(
        model="tiny",
        input=(Message("user", "hi"),),
        instructions="Be kind.",
        previous_response_id="resp_1",
        stream=True,
        obfuscate=True,
        store=False,
        max_output_tokens=5,
        sampling=Sampling(0.0, 0.5, 7, 5, 0.1, 1.1, 1.0, -1.0, ("X",), 3),
        new_seed=False,
        left_open=frozenset(),
        parallel_tool_calls=False,
        truncation="auto",
        prompt_cache_key="conversation",
        cache_salt="salt",
        echoed=Echoed(max_tool_calls=4, safety_identifier="somebody"),
        metadata={"retention_seconds": 60, "team": "a"},
        retention_s=60,
        retry_keys={"x-client-request-id": "k"},
    )


def test_the_body_under_an_idempotency_key_is_the_same_in_any_order_and_spacing() -> None:
    """T2-26."""

    def digest(body: bytes, **headers: str) -> str | None:
        return decode_request(
            body, {name.replace("_", "-"): key for name, key in headers.items()}
        ).body_sha256

    same = [
        b'{"model": "tiny", "input": [{"role": "user", "content": "hi"}], "metadata": {"a": "1", "b": "2"}}',
        b'{"metadata":{"b":"2","a":"1"},"input":[{"content":"h\\u0069","role":"user"}],"model":"tiny"}',
    ]
    others = [b'{"model": "tiny", "input": "hi"}', b'{"model": "tiny", "input": "hi", "stream": true}']
    digests = [digest(body, idempotency_key="k") for body in (*same, *others)]

    assert None not in digests
    assert [digests.index(each) for each in digests] == [0, 0, 2, 3]
    assert [
        digest(same[0]),
        digest(same[0], idempotency_key=""),
        digest(same[0], x_client_request_id="k"),
    ] == [None] * 3


def test_what_only_the_response_shows_stands_under_the_same_name_in_the_body() -> None:
    assert set(Echoed.__struct_fields__) | set(Sampling.__struct_fields__) <= set(
        RequestBody.__struct_fields__
    )


def test_half_a_surrogate_pair_is_read_as_the_replacement_character() -> None:
    """T2-10: wherever in the body it stands."""
    call = {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "a \ud83d b"}
    body = {"model": "tiny", "input": [call, output], "instructions": "\ude42🙂", "metadata": {"\ud83d": "x"}}

    request = decode_request(json.dumps(body).encode(), {})

    assert isinstance(request.input[1], Message)
    assert (request.input[1].content, request.instructions) == ("a \ufffd b", "\ufffd🙂")
    assert request.metadata == {"\ufffd": "x"}


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"", None, "invalid_json"),
        (b"{", None, "invalid_json"),
        (b'{"a": NaN}', None, "invalid_json"),
        (b'{"a": "\xff"}', None, "invalid_json"),
        (b'{"a": "\\ud800", "b": NaN}', None, "invalid_json"),
        (b'{"a": "\\ud800', None, "invalid_json"),
        (b'{"a": "\\ud800\xed\xa0\x80"}', None, "invalid_json"),
        (b"[" * 5_000 + b"]" * 5_000, None, "json_too_deep"),
        (b"null", "body", "invalid_request"),
        (b"[]", "body", "invalid_request"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes, param: str | None, code: str) -> None:
    """R-002, R-012, D-06."""
    error = refused(body)

    assert (error.param, error.code) == (param, code)


@pytest.mark.parametrize(("levels", "too_deep"), [(MOST_LEVELS - 1, False), (MOST_LEVELS, True)])
def test_json_that_is_nested_too_deep_is_refused(levels: int, *, too_deep: bool) -> None:
    """D-06."""
    nested: Any = 1
    for _ in range(levels - 2):
        nested = {"a": nested}
    tool = {"type": "web_search", "filters": nested}

    if too_deep:
        assert refusal(tools=[tool]).code == "json_too_deep"
    else:
        assert decode(tools=[tool]).tools == (tool,)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("model", [7, ["tiny"]]),
        ("input", [7, True, {}, "", "  \n", []]),
        ("max_output_tokens", [0, -1, 1.5, "5", True, 2**31, [], {}]),
        ("seed", [1.5]),
        ("previous_response_id", [7, ["resp_1"], {"id": "resp_1"}]),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field: str, values: list[Any]) -> None:
    """R-014, R-016, R-017, R-018, D-11, G-001, G-002, G-121, B14, A9."""
    for value in values:
        error = refusal(**{field: value})
        assert (error.param, field in error.message or field == "input") == (field, True)


@pytest.mark.parametrize(("field", "absent"), [("model", [None, "", 0, False]), ("input", [None])])
def test_a_missing_field_is_refused_by_name(field: str, absent: list[Any]) -> None:
    """R-013, R-015."""
    without = {name: value for name, value in LEAST.items() if name != field}

    for body in (without, *(LEAST | {field: value} for value in absent)):
        error = refused(json.dumps(body).encode())
        assert (error.param, error.code) == (field, "missing_field")
        assert error.message == f"Missing required field: {field}"


def test_the_first_failure_in_the_order_of_the_specification_is_told() -> None:
    """R-011: whatever the order in the body; what an item says is looked at after the fields (R-019)."""
    wrong = {"temperature": 9, "max_output_tokens": 0, "input": 7, "model": ""}

    params = []
    for mended in ({}, {"model": "x"}, {"input": [7]}, {"max_output_tokens": 1}, {"temperature": 1}):
        wrong |= mended
        params.append(refused(json.dumps(wrong).encode()).param)

    assert params == ["model", "input", "max_output_tokens", "temperature", "input"]


@pytest.mark.parametrize("retention", [59, 7_776_001, 1.5, "600", True, []])
def test_retention_out_of_range_is_refused_with_the_sentence_that_clients_parse(retention: Any) -> None:
    """R-023, G-003."""
    error = refusal(metadata={"retention_seconds": retention})

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
        ({"instructions": ""}, {"instructions": ""}),
        ({"previous_response_id": ""}, {"previous_response_id": None}),
        ({"store": False}, {"store": False}),
        ({"stream": True}, {"stream": True}),
        ({"metadata": {}}, {"metadata": {}}),
        ({"include": ["reasoning.encrypted_content"]}, {"sampling": DEFAULT_SAMPLING}),
        ({"text": {}}, {"text": {"format": {"type": "text"}}}),
        ({"reasoning": {}}, {"reasoning": {"effort": None, "summary": None}}),
    ],
)
def test_a_field_says_what_it_says(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """R-017, R-150, G-005."""
    request = decode(**fields)

    assert {name: getattr(request, name) for name in expected} == expected


@pytest.mark.parametrize("field", sorted(set(RequestBody.__struct_fields__) - {"model", "input"}))
def test_null_is_absent(field: str) -> None:
    """D-36, R-020."""
    assert decode(**{field: None}) == decode()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("store", ["false", "true", 0, 1, "", []]),
        ("stream", ["false", 0, 1, "", {}]),
        ("parallel_tool_calls", ["false", 0]),
        ("background", ["false", 0, "", True]),
        ("instructions", [["Be kind."], 7, {}, False]),
        ("metadata", [[1], [], "none", "", 0]),
        ("include", ["message.output_text.logprobs", {}, [1]]),
        ("previous_response_id", [0, False, []]),
        ("prompt_cache_key", [7, []]),
        ("cache_salt", [7, {}]),
        ("safety_identifier", [7, False]),
        ("max_tool_calls", ["4", 0]),
        ("stream_options", ["", [], True]),
        ("text", ["", [], False]),
        ("reasoning", ["", [], False]),
        ("tool_choice", [7, [], False]),
        ("tools", [{}, "", [{"type": "function", "name": "add", "description": 7}]]),
        ("tools", [[{"type": "function", "name": "add", "strict": "true"}]]),
        ("tools", [[{"type": "web_search", "name": 7}]]),
        ("input", [[{"type": "function_call_output", "call_id": "c", "output": "", "is_error": "false"}]]),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(field: str, values: list[Any]) -> None:
    """T2-24, D-36, R-020, R-021, R-150."""
    for value in values:
        error = refusal(**{field: value})
        assert (error.param, field in error.message) == (field, True)


def test_empty_input_is_fine_when_there_is_something_to_go_on_from() -> None:
    """D-11, R-172."""
    assert decode(input=[], previous_response_id="resp_1").input == ()


# ── whatever is sent ──────────────────────────────────────────────────────────────────────────────

FORMS = (*ITEMS, *TOOLS, Part, ReasoningOptions, TextOptions, JsonSchemaFormat)
NAMES = sorted({"type", "function", "mode", *(name for form in FORMS for name in form.__struct_fields__)})
WORDS = [str(form.__struct_config__.tag) for form in FORMS]
WORDS += [
    "input_text",
    "output_text",
    "input_image",
    "user",
    "web_search",
    "allowed_tools",
    "c1",
    "",
    "\u2028",
]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(RequestBody.__struct_fields__), anything, max_size=5),
    st.lists(anything, max_size=3),
)
def test_whatever_is_sent_is_understood_or_refused(fields: dict[str, Any], items: list[Any]) -> None:
    """R-170: and a refusal of a field names it."""
    body = json.dumps(LEAST | {"input": [SAY, *items]} | fields).encode()

    try:
        decode_request(body, {})
    except InvalidRequestError as error:
        assert error.param or error.code in ("invalid_json", "json_too_deep")

"""Bodies of `POST /v1/responses`: what is accepted, and what is refused by the name of the field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.request import decode_request
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.inputs import ItemReference
from turnlog.domain.messages import Image, Message, ToolCall
from turnlog.domain.ports import JsonGuide
from turnlog.domain.request import TurnRequest
from turnlog.domain.tools import Toolbox, ToolChoice

MOST_LEVELS = RequestLimits().json_depth
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


@pytest.mark.parametrize(("levels", "refused"), [(MOST_LEVELS - 1, False), (MOST_LEVELS, True)])
def test_json_that_is_nested_too_deep_is_refused(levels: int, *, refused: bool) -> None:
    """D-06."""
    nested: Any = 1
    for _ in range(levels - 2):
        nested = {"a": nested}
    tool = {"type": "web_search", "filters": nested}

    body = json.dumps(LEAST | {"tools": [tool]}).encode()

    if refused:
        assert refusal(body).code == "json_too_deep"
    else:
        assert decode_request(body, {}).tools == (tool,)


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
    """R-013, R-014, R-015, R-016, R-017, R-018, D-11, G-001, G-002, G-121, B14, A9."""
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
    """R-159, R-160, R-162, B1, B4, B6."""
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


TEXT = {"type": "input_text", "text": "a"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ("hi", "input[1] must be an object"),
        ({"role": "robot", "content": "x"}, "input[1].role"),
        ({"content": "x"}, "input[1].role"),
        ({"role": "user"}, "input[1].content"),
        ({"role": "user", "content": [7]}, "input[1].content[0]"),
        ({"role": "user", "content": [{"type": "input_file"}]}, "input[1].content[0]"),
        ({"role": "assistant", "content": [IMAGE]}, "input[1].content[0]"),
        ({"role": "user", "content": [IMAGE, TEXT]}, "input[1].content[1]"),
        (
            {"role": "user", "content": [IMAGE | {"image_url": "http://x/y.png"}]},
            "input[1].content[0].image_url",
        ),
        ({"role": "user", "content": [IMAGE | {"image_url": None}]}, "input[1].content[0].image_url"),
        (
            {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
            "input[1].content[0].image_url",
        ),
        ({"role": "user", "content": [IMAGE | {"image_url": "data:image/png;base64,%"}]}, "base64"),
        ({"type": "function_call", "call_id": "c"}, "input[1]: Object missing required field `name`"),
        ({"type": "function_call", "name": 7, "call_id": "c"}, "input[1].name"),
        ({"type": "function_call", "name": "f", "call_id": "c", "arguments": {}}, "input[1].arguments"),
        ({"type": "function_call_output", "call_id": "c", "output": 7}, "input[1].output"),
        ({"type": "function_call_output", "call_id": "c", "output": [7]}, "input[1].output[0]"),
        ({"type": "reasoning", "summary": "hm"}, "input[1].summary"),
        ({"type": "item_reference"}, "input[1].id"),
        ({"type": {}}, "input[1].type"),
        ({"type": "additional_tools", "tools": 7}, "input[1].tools"),
        ({"role": "user", "content": [{"type": "sound"}]}, "input[1].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[1].content[0].text"),
        ({"role": "user", "content": [{"type": "input_text", "text": 7}]}, "input[1].content[0].text"),
    ],
)
def test_a_wrong_item_is_refused_by_its_place(item: Any, place: str) -> None:
    """R-019, R-159, R-160, R-162, R-163, R-164, R-170."""
    error = refusal(json.dumps(LEAST | {"input": [{"role": "user", "content": "a"}, item]}).encode())

    assert (error.param, place in error.message) == ("input", True)


def test_empty_input_is_fine_when_there_is_something_to_go_on_from() -> None:
    """D-11, R-172."""
    assert decode(input=[], previous_response_id="resp_1").input == ()


FUNCTION = {"type": "function", "name": "add", "parameters": {"type": "object"}}
ADD = {**FUNCTION, "description": None, "strict": None}


def pieces(*items: Any) -> tuple[Any, ...]:
    """The pieces of a request with these items after a user's message."""
    return decode(input=[{"role": "user", "content": "a"}, *items]).input[1:]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "assistant", "content": None}, [Message("assistant", "")]),
        (
            {"role": "user", "content": [TEXT, IMAGE, IMAGE]},
            [Message("user", "a", images=(Image("image/png", b"hi"),) * 2)],
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
            [Message("assistant", "", tool_calls=(ToolCall("c", "add", "{}"),))],
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "read", "namespace": "fs", "arguments": ""},
            [Message("assistant", "", tool_calls=(ToolCall("c", "fs__read", ""),))],
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x"},
            [Message("assistant", "", tool_calls=(ToolCall("c", "patch", '{"input":"x"}'),))],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "3"},
            [Message("tool", "3", call_id="c")],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "no", "is_error": True},
            [Message("tool", "no", call_id="c", is_error=True)],
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "no", "is_error": "yes"},
            [Message("tool", "no", call_id="c")],
        ),
        (
            {"type": "custom_tool_call_output", "call_id": "c", "output": [TEXT, IMAGE]},
            [Message("tool", "a[an image that the model cannot see]", call_id="c")],
        ),
        (
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            [Message("assistant", "", reasoning="hm")],
        ),
        (
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            [Message("assistant", "", reasoning="hm")],
        ),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, []),
        ({"type": "reasoning", "encrypted_content": "x"}, []),
        ({"type": "item_reference", "id": "msg_1"}, [ItemReference("msg_1", 1)]),
        ({"id": "msg_1"}, [ItemReference("msg_1", 1)]),
        ({"type": "agent_message", "content": [TEXT, {"type": "sound"}]}, [Message("user", "a")]),
        ({"type": "note", "role": "assistant", "content": "b"}, [Message("assistant", "b")]),
        ({"type": "web_search_call", "id": "ws_1", "status": "completed"}, []),
        ({"type": "compaction", "encrypted_content": "x"}, []),
    ],
)
def test_an_item_of_any_form_becomes_a_piece_of_the_conversation(item: Any, expected: list[Any]) -> None:
    """R-163, R-165, R-166, R-167, R-168, D-10, B2, B5, B6, B9, B10, B19, B20."""
    assert list(pieces(item)) == expected


def test_items_of_unknown_types_are_skipped_with_one_line_for_each_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        pieces({"type": "web_search_call"}, {"type": "web_search_call"}, {"type": "mcp_call"})

    assert [record.message for record in caplog.records] == [
        "[responses] input items of type 'mcp_call' are skipped",
        "[responses] input items of type 'web_search_call' are skipped",
    ]


def test_additional_tools_are_tools() -> None:
    request = decode(
        input=[{"role": "user", "content": "a"}, {"type": "additional_tools", "tools": [FUNCTION]}]
    )

    assert request.tools == (ADD,)


def test_tools_are_echoed_whole_and_only_callable_ones_are_offered(caplog: pytest.LogCaptureFixture) -> None:
    """R-174, R-175, D-07, A1, A2, A5, A6, T2-34."""
    hosted = {"type": "web_search", "filters": {}}
    custom = {"type": "custom", "name": "patch", "format": {"type": "text"}}
    namespace = {"type": "namespace", "name": "fs", "tools": [FUNCTION | {"name": "read"}]}
    nested = {"type": "function", "function": {"name": "sub", "description": "Subtract."}}

    with caplog.at_level("INFO"):
        request = decode(tools=[FUNCTION, hosted, hosted, custom, namespace, nested])

    sub = {"type": "function", "name": "sub", "description": "Subtract.", "parameters": None, "strict": None}
    members = [ADD | {"name": "read"}]
    assert request.tools == (ADD, hosted, hosted, custom, namespace | {"tools": members}, sub)
    offered = Toolbox(request.tools, request.choice).offered
    assert [(tool.name, tool.kind) for tool in offered] == [
        ("add", "function"),
        ("patch", "custom"),
        ("fs__read", "function"),
        ("sub", "function"),
    ]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "tools",
    ["all", [7], [{}], [{"type": 7}], [{"type": "function"}], [{"type": "function", "name": ""}],
     [{"type": "custom"}], [{"type": "namespace"}], [{"type": "namespace", "name": "n", "tools": 7}],
     [FUNCTION | {"parameters": []}]],
)  # fmt: skip
def test_tools_that_cannot_be_read_are_refused(tools: Any) -> None:
    """R-174, R-175."""
    assert refusal(json.dumps(LEAST | {"tools": tools}).encode()).param == "tools"


NAMED = {"type": "function", "name": "add"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (NAMED, ToolChoice("required", ("add",))),
        ({"type": "function", "function": {"name": "add"}}, ToolChoice("required", ("add",))),
        ({"type": "function", "name": "read"}, ToolChoice("required", ("fs__read",))),
        ({"type": "function", "name": "read", "namespace": "fs"}, ToolChoice("required", ("fs__read",))),
        ({"type": "web_search"}, ToolChoice()),
        ({"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}, ToolChoice("auto", ("add",))),
        ({"type": "allowed_tools", "mode": "required", "tools": [NAMED]}, ToolChoice("required", ("add",))),
        ({"type": "allowed_tools", "tools": [NAMED, {"type": "mcp"}]}, ToolChoice("auto", ("add",))),
    ],
)
def test_a_tool_choice_is_understood_in_every_form(given: Any, expected: ToolChoice) -> None:
    """R-174, D-08."""
    namespace = {"type": "namespace", "name": "fs", "tools": [FUNCTION | {"name": "read"}]}

    assert decode(tools=[FUNCTION, namespace], tool_choice=given).choice == expected


@pytest.mark.parametrize("given", [{"type": "function", "name": "sub"}, "all", 7, [], {"name": "add"}])
def test_a_tool_choice_that_cannot_be_met_is_refused(given: Any) -> None:
    """D-08."""
    error = refusal(json.dumps(LEAST | {"tools": [FUNCTION], "tool_choice": given}).encode())

    assert error.param == "tool_choice"


@pytest.mark.parametrize("tools", [[], [{"type": "web_search"}]])
def test_a_call_cannot_be_required_without_a_tool(tools: list[Any]) -> None:
    body = LEAST | {"tools": tools, "tool_choice": "required"}

    assert refusal(json.dumps(body).encode()).param == "tool_choice"


SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("text", "echo", "guide"),
    [
        (None, {}, None),
        ({"verbosity": "low"}, {"format": {"type": "text"}, "verbosity": "low"}, None),
        ({"format": {"type": "json_object"}}, {"format": {"type": "json_object"}}, JsonGuide(None)),
        (
            {"format": {"type": "json_schema", "name": "r", "schema": SCHEMA, "strict": True}},
            {
                "format": {
                    "type": "json_schema",
                    "schema": SCHEMA,
                    "name": "r",
                    "description": None,
                    "strict": True,
                }
            },
            JsonGuide(SCHEMA),
        ),
    ],
)
def test_a_text_format_is_echoed_and_understood(text: Any, echo: Any, guide: JsonGuide | None) -> None:
    """B15."""
    request = decode(text=text)

    assert (request.text, request.json_format) == (echo, guide)


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("text", "json", "text"),
        ("text", {"format": {"type": "yaml"}}, "text.format"),
        ("text", {"format": {"type": "json_schema"}}, "text.format"),
        ("text", {"format": {"type": "json_schema", "schema": []}}, "text.format.schema"),
        ("text", {"verbosity": "loud"}, "text.verbosity"),
        ("reasoning", {"effort": "enormous"}, "reasoning.effort"),
        ("reasoning", "high", "reasoning"),
        ("stream_options", {"include_obfuscation": "yes"}, "stream_options.include_obfuscation"),
        ("stop", [""], "stop"),
        ("stop", ["a"] * 17, "stop"),
        ("stop", {"a": 1}, "stop"),
        ("truncation", "some", "truncation"),
        ("top_logprobs", 21, "top_logprobs"),
        ("top_k", 1.5, "top_k"),
        ("min_p", 2, "min_p"),
        ("presence_penalty", 3, "presence_penalty"),
        ("frequency_penalty", -3, "frequency_penalty"),
        ("repetition_penalty", 0, "repetition_penalty"),
        ("background", True, "background"),
        ("conversation", "conv_1", "conversation"),
        ("prompt", {"id": "p"}, "prompt"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused_by_name(field: str, value: Any, param: str) -> None:
    error = refusal(json.dumps(LEAST | {field: value}).encode())

    assert error.param is not None
    assert error.param.startswith(param)


@pytest.mark.parametrize(
    ("reasoning", "thinking"),
    [
        (None, None), ({}, None), ({"summary": "auto"}, None), ({"effort": None}, None),
        ({"effort": "none"}, False), ({"effort": "minimal"}, False), ({"effort": "low"}, False),
        ({"effort": "medium"}, True), ({"effort": "high"}, True), ({"effort": "max"}, True),
    ],
)  # fmt: skip
def test_the_effort_says_whether_the_model_thinks(reasoning: Any, thinking: bool | None) -> None:
    """R-173, R-239, F5."""
    assert decode(reasoning=reasoning).thinking is thinking


def test_sampling_and_stops_are_taken_as_they_are_given() -> None:
    """R-173."""
    request = decode(
        top_k=5, min_p=0.1, presence_penalty=1, frequency_penalty=-1, repetition_penalty=1.1, stop="X",
        top_logprobs=3, include=["message.output_text.logprobs"], truncation="auto",
        parallel_tool_calls=False, stream_options={"include_obfuscation": True},
    )  # fmt: skip

    assert (request.top_k, request.min_p, request.repetition_penalty) == (5, 0.1, 1.1)
    assert (request.presence_penalty, request.frequency_penalty) == (1.0, -1.0)
    assert (request.stop, request.top_logprobs, request.truncation) == (("X",), 3, "auto")
    assert (request.parallel_tool_calls, request.obfuscate) == (False, True)


def test_log_probabilities_are_told_only_if_they_are_asked_for() -> None:
    assert decode(top_logprobs=3).top_logprobs is None
    assert decode(include=["message.output_text.logprobs"]).top_logprobs == 0


WORDS = [
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "reasoning",
    "item_reference",
]
WORDS += [
    "additional_tools",
    "input_text",
    "output_text",
    "input_image",
    "function",
    "custom",
    "namespace",
    "user",
]
WORDS += ["assistant", "web_search", "allowed_tools", "json_schema", "auto", "required", "c1", "", "\u2028"]
NAMES = [
    "type",
    "role",
    "content",
    "text",
    "id",
    "call_id",
    "name",
    "arguments",
    "output",
    "summary",
    "tools",
]
NAMES += [
    "function",
    "namespace",
    "image_url",
    "parameters",
    "format",
    "schema",
    "effort",
    "mode",
    "is_error",
]
FIELDS = [
    "instructions",
    "previous_response_id",
    "stream",
    "store",
    "max_output_tokens",
    "temperature",
    "seed",
]
FIELDS += [
    "metadata",
    "tools",
    "tool_choice",
    "text",
    "reasoning",
    "stream_options",
    "include",
    "stop",
    "top_p",
]
FIELDS += ["top_logprobs", "truncation", "parallel_tool_calls", "prompt", "min_p", "top_k", "model", "input"]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=5), st.lists(anything, max_size=3))
def test_whatever_is_sent_is_understood_or_refused(fields: dict[str, Any], items: list[Any]) -> None:
    """R-170: and a refusal of a field names it."""
    body = json.dumps(LEAST | {"input": [{"role": "user", "content": "a"}, *items]} | fields).encode()

    try:
        decode_request(body, {})
    except InvalidRequestError as error:
        assert error.param or error.code in ("invalid_json", "json_too_deep")


@pytest.mark.parametrize("kind", [{"a": 1}, ["a"], 7, None, True])
def test_a_part_whose_type_is_no_text_is_like_any_unknown_one(kind: Any) -> None:
    """Found by `tests/fuzz/soak.py`: an object or a list as a type was a crash."""
    part = {"type": kind, "text": "x"}
    output = {"type": "function_call_output", "call_id": "c", "output": [part]}
    unknown = {"type": "unheard", "content": [part]}

    request = decode(input=[{"role": "user", "content": "hi"}, output, unknown])

    assert [message.content for message in request.input if isinstance(message, Message)] == [
        "hi",
        "[a part of type (not a name)]",
    ]

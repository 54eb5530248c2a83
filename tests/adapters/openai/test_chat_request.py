"""The body of Chat Completions becomes the command that the Responses API makes."""

import json
from typing import Any

import pytest

from tests.adapters.openai.asking import decode
from turnlog.adapters.openai.chat.request import decode_chat
from turnlog.adapters.openai.chat.words import in_chat_words
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Image, Message, ToolCall
from turnlog.domain.request import TurnRequest

Json = dict[str, Any]

SAY: Json = {"role": "user", "content": "hi"}
PARAMETERS: Json = {"type": "object", "properties": {}}
ADD: Json = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS, "strict": True}}
FLAT_ADD: Json = {"type": "function", "name": "add", "parameters": PARAMETERS, "strict": True}
SHOUT: Json = {"type": "custom", "custom": {"name": "shout"}}
PIXEL = "data:image/png;base64,AAAA"
DEFAULT_LIMITS = RequestLimits()


def chat(
    *messages: Json, stores: bool = True, limits: RequestLimits = DEFAULT_LIMITS, **fields: Any
) -> TurnRequest:
    """The command of a chat."""
    body = {"model": "tiny", "messages": list(messages or (SAY,))} | fields
    return decode_chat(json.dumps(body).encode(), {}, limits, stores=stores)


def refusal(*messages: Any, **fields: Any) -> InvalidRequestError:
    """How it is refused."""
    with pytest.raises(InvalidRequestError) as caught, in_chat_words():
        chat(*messages, **fields)
    return caught.value


def test_the_same_request_is_the_same_command_on_both_surfaces() -> None:
    schema = {"name": "n", "schema": PARAMETERS, "strict": True}
    same: Json = {
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["x"], "presence_penalty": 1,
        "frequency_penalty": -1, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1, "metadata": {"a": "b"},
        "parallel_tool_calls": False, "prompt_cache_key": "k" * 8, "cache_salt": "s", "stream": True,
    }  # fmt: skip

    by_chat = chat(
        {"role": "developer", "content": "Be kind."},
        SAY,
        **same,
        max_completion_tokens=9,
        tools=[ADD, SHOUT],
        tool_choice={"type": "function", "function": {"name": "add"}},
        response_format={"type": "json_schema", "json_schema": schema},
        reasoning_effort="low",
        verbosity="low",
        logprobs=True,
        top_logprobs=2,
        user="ann",
    )

    by_responses = decode(
        input=[{"role": "developer", "content": "Be kind."}, SAY],
        **same,
        max_output_tokens=9,
        tools=[FLAT_ADD, {"type": "custom", "name": "shout"}],
        tool_choice={"type": "function", "name": "add"},
        text={"format": {"type": "json_schema", **schema}, "verbosity": "low"},
        reasoning={"effort": "low"},
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        safety_identifier="ann",
    )
    assert chat().surface == "chat"
    for name in TurnRequest.__struct_fields__:
        if name != "surface":
            assert getattr(by_chat, name) == getattr(by_responses, name), name


@pytest.mark.parametrize(
    ("given", "mode", "names"),
    [
        ("none", "none", None),
        ("auto", "auto", None),
        ("required", "required", None),
        ({"type": "function", "function": {"name": "add"}}, "required", ("add",)),
        ({"type": "custom", "custom": {"name": "shout"}}, "required", ("shout",)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [ADD]}},
            "required",
            ("add",),
        ),
    ],
)
def test_a_tool_choice_is_understood_in_every_form(given: Any, mode: str, names: Any) -> None:
    """D-08."""
    choice = chat(tools=[ADD, SHOUT], tool_choice=given).choice

    assert (choice.mode, choice.names) == (mode, names)


def test_messages_of_every_role_are_read() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}},
        {"id": "b", "type": "custom", "custom": {"name": "shout", "input": "x"}},
    ]
    image = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}

    command = chat(
        {"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]},
        {"role": "user", "name": "Ann", "content": [image, {"type": "text", "text": "see"}]},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "X"}]},
        {"role": "assistant", "content": None, "refusal": "No."},
    )

    assert command.input == (
        Message("system", "Be kind."),
        Message("user", "see", images=(Image("image/png", b"\0\0\0"),)),
        Message(
            "assistant",
            "",
            reasoning="hm",
            tool_calls=(ToolCall("a", "add", "{}"), ToolCall("b", "shout", '{"input":"x"}')),
        ),
        Message("tool", "1", call_id="a"),
        Message("tool", "X", call_id="b"),
        Message("assistant", "No."),
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"functions": [{"name": "add"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"store": "no"}, "store"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"metadata": {"k": "x" * 513}}, "metadata.k"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": "x" * 70_000}}}},
            "response_format",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_the_name_of_its_field(fields: Json, param: str) -> None:
    assert refusal(**fields).param == param


@pytest.mark.parametrize("fields", [{"n": 1}, {"logit_bias": {}}, {"modalities": ["text"]}, {"new": 1}])
def test_what_changes_nothing_and_what_nobody_knows_passes(fields: Json) -> None:
    """D-36."""
    assert chat(**fields) == chat()


def test_the_request_says_whether_it_is_stored_or_else_the_setting() -> None:
    said = [
        chat(stores=stores, store=store).store for stores in (True, False) for store in (None, True, False)
    ]

    assert said == [True, True, False, False, True, False]


def test_a_new_limit_goes_before_the_old_one_and_any_seed_is_a_seed() -> None:
    assert chat(max_tokens=5, max_completion_tokens=9).max_output_tokens == 9
    assert chat(max_tokens=5).max_output_tokens == 5
    assert chat(seed=-1).sampling.seed == 2**64 - 1


def test_so_many_messages_are_taken_as_input_items() -> None:
    limits = RequestLimits(input_items=2)

    chat(SAY, SAY, limits=limits)
    assert refusal(SAY, SAY, SAY, limits=limits).code == "array_above_max_length"

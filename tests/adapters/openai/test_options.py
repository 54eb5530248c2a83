"""Options of a request: formats, effort, stops, log probabilities, and those that cannot be honoured."""

import json
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from tests.adapters.openai.asking import decode, refusal, refused
from turnlog.adapters.openai.forms import ChatCompletionsFields, RequestBody
from turnlog.domain.ports import JsonConstraint
from turnlog.domain.request import DEFAULT_SAMPLING

SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("text", "echo", "constraint"),
    [
        (None, {}, None),
        ({"verbosity": "low"}, {"format": {"type": "text"}, "verbosity": "low"}, None),
        ({"format": {"type": "json_object"}}, {"format": {"type": "json_object"}}, JsonConstraint(None)),
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
            JsonConstraint(SCHEMA),
        ),
    ],
)
def test_a_text_format_is_echoed_and_understood(
    text: Any, echo: Any, constraint: JsonConstraint | None
) -> None:
    """B15."""
    request = decode(text=text)

    assert (request.text, request.json_format) == (echo, constraint)


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
    ],
)
def test_an_option_of_another_form_is_refused_by_name(field: str, value: Any, param: str) -> None:
    error = refusal(**{field: value})

    assert error.param is not None
    assert error.param.startswith(param)


@pytest.mark.parametrize(
    ("field", "value"), [("background", True), ("conversation", "conv_1"), ("prompt", {"id": "p"})]
)
def test_an_option_that_changes_the_meaning_and_is_not_there_is_refused(field: str, value: Any) -> None:
    error = refusal(**{field: value})

    assert (error.param, error.code) == (field, "unsupported_parameter")
    assert error.message.startswith(f"{field} is not supported; ")
    assert decode(**{field: None}) == decode()


def test_a_turn_that_is_not_to_run_in_the_background_is_any_turn() -> None:
    assert decode(background=False) == decode()


@pytest.mark.parametrize(
    ("field", "value", "instead"),
    [
        ("messages", [{"role": "user", "content": "hi"}], "input"),
        ("max_tokens", 5, "max_output_tokens"),
        ("max_completion_tokens", 5, "max_output_tokens"),
        ("response_format", {"type": "json_object"}, "text.format"),
        ("reasoning_effort", "low", "reasoning.effort"),
        ("verbosity", "low", "text.verbosity"),
        ("functions", [{"name": "add"}], "tools"),
        ("function_call", "auto", "tool_choice"),
        ("logprobs", True, "include"),
        ("n", 2, "one request"),
        ("logit_bias", {"50256": -100}, "without it"),
        ("modalities", ["audio"], "without it"),
        ("audio", {"voice": "alloy"}, "without it"),
        ("prediction", {"type": "content", "content": "hi"}, "without it"),
        ("web_search_options", {}, "without it"),
    ],
)
def test_a_field_of_chat_completions_is_refused_and_the_refusal_names_the_right_one(
    field: str, value: Any, instead: str
) -> None:
    """T2-09, D-36: also when nothing else of the body is there yet."""
    for error in (refusal(**{field: value}), refused(json.dumps({field: value}).encode())):
        assert (error.param, error.code) == (field, "unsupported_parameter")
        assert instead in error.message
    assert decode(**{field: None}) == decode()


def test_every_field_that_only_chat_completions_has_is_known() -> None:
    """T2-09: as the SDK declares them; `stop`, `seed` and the penalties are taken here, too."""
    chat, responses = (
        set(each.__annotations__) for each in (CompletionCreateParamsBase, ResponseCreateParamsBase)
    )
    taken = set(RequestBody.__struct_fields__) - set(ChatCompletionsFields.__struct_fields__)

    assert chat - responses - taken == set(ChatCompletionsFields.__struct_fields__)


def test_fields_that_nobody_knows_yet_are_passed_over() -> None:
    """D-36."""
    assert decode(thinking_budget=5, client_metadata={"a": 1}, user="somebody") == decode()


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        (None, None), ({}, None), ({"summary": "auto"}, None), ({"effort": None}, None),
        ({"effort": "none"}, "none"), ({"effort": "max"}, "max"),
    ],
)  # fmt: skip
def test_the_effort_is_what_the_model_is_asked_for(reasoning: Any, effort: str | None) -> None:
    """R-173, F5."""
    assert decode(reasoning=reasoning).effort == effort


def test_a_default_that_is_asked_for_is_the_default_itself() -> None:
    """The log leaves it out, as if it had not been asked for."""
    sampling = decode(min_p=0.0, presence_penalty=0, repetition_penalty=1, top_k=0, stop=[]).sampling

    assert all(
        getattr(sampling, name) is getattr(DEFAULT_SAMPLING, name) for name in ("min_p", "presence_penalty")
    )
    assert sampling == DEFAULT_SAMPLING


def test_log_probabilities_are_told_only_if_they_are_asked_for() -> None:
    assert decode(top_logprobs=3).sampling.top_logprobs is None
    assert decode(include=["message.output_text.logprobs"]).sampling.top_logprobs == 0

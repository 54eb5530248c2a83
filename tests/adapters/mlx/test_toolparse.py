"""Calls are read in the formats of models; what is none comes back as it was, and soon."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from turnlog.adapters.mlx.toolparse import (
    MOST_CHARACTERS,
    MOST_CHARACTERS_OF_QUICK_PARSERS,
    CallParser,
    read_forced,
)
from turnlog.domain.ports import EngineCall
from turnlog.domain.tools import Tool

ADD = Tool("add", "function", "add", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
ADDED = EngineCall("add", '{"a":1}')
FORMATS = {
    "json_tools": '{"name": "add", "arguments": {"a": 1}}',
    "mistral": 'add[ARGS]{"a": 1}',
    "qwen3_coder": "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>",
    "glm47": "add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>",
    "pythonic": "[add(a=1)]",
    "gemma4": "call:add{a:1}",
    "function_gemma": "call:add{a:1}",
    "minimax_m2": '<invoke name="add"><parameter name="a">1</parameter></invoke>',
    "longcat": "add\n<longcat_arg_key>a</longcat_arg_key>\n<longcat_arg_value>1</longcat_arg_value>",
    "kimi_k2": 'functions.add:0<|tool_call_argument_begin|>{"a": 1}',
    "minicpm5": '"add"><param name="a">1</param>',
}


def parser(name: str | None = None) -> CallParser:
    """The parser of models of one format; of none, the default."""
    parse: Any = import_module(f"mlx_lm.tool_parsers.{name}").parse_tool_call if name else None
    return CallParser(SimpleNamespace(tool_parser=parse))


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_is_read_in_the_format_of_its_model(name: str) -> None:
    """R-254: its arguments are JSON text, whatever they were written as."""
    [call] = parser(name).read(FORMATS[name], [ADD])

    assert (call.name, call.arguments, call.status) == ("add", '{"a":1}', "ok")


def test_without_a_format_a_call_is_json() -> None:
    assert parser().read('\n{"name": "add", "arguments": {"a": 1}}\n', [ADD]) == (ADDED,)
    assert parser().read('{"name": "add", "parameters": {"a": 1}}', [ADD]) == (ADDED,)


def test_one_text_may_hold_several_calls() -> None:
    assert parser("mistral").read('add[ARGS]{"a": 1}add[ARGS]{"a": 1}', [ADD]) == (ADDED, ADDED)
    assert parser().read('[{"name": "add", "arguments": {"a": 1}}, {"name": "add"}]', [ADD]) == (
        ADDED,
        EngineCall("add", "{}"),
    )


def test_arguments_written_as_a_text_are_read() -> None:
    assert parser().read('{"name": "add", "arguments": "{\\"a\\": 1}"}', [ADD]) == (ADDED,)


def test_half_a_surrogate_pair_stays_an_escape() -> None:
    [call] = parser().read('{"name": "add", "arguments": {"a": "\\ud83d é"}}', [ADD])

    assert call == EngineCall("add", '{"a":"\\ud83d \\u00e9"}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hi",
        "[]",
        "17",
        '"add"',
        '{"arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": 7, "arguments": {}}',
        '{"name": "\\ud83d", "arguments": {}}',
        '{"name": "add", "arguments": [1]}',
        '{"name": "add", "arguments": "a = 1"}',
        '{"name": "add", "arguments": {"a": NaN}}',
        '[{"name": "add"}, "and"]',
        '{"name": "add", "arguments": {"a": 1',
    ],
)
def test_what_is_no_call_comes_back_as_it_was(text: str) -> None:
    assert parser().read(text, [ADD]) == (EngineCall("", text, status="invalid_json"),)


def test_a_guess_at_a_name_is_no_call() -> None:
    """The parser of GLM makes a call of anything."""
    for text in ("So be it.", "?!"):
        assert parser("glm47").read(text, [ADD]) == (EngineCall("", text, status="invalid_json"),)


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_text_is_soon_found_to_be_no_call(name: str) -> None:
    """Reliability, finding 10: no parser gets so much that it holds up the engine."""
    nested = "{" * 100_000 + "}" * 100_000

    too_long, deep = (parser(name).read(text, [ADD]) for text in (nested, nested[-4_000:]))

    assert too_long == (EngineCall("", nested, status="too_long"),)
    assert all(call.status == "invalid_json" for call in deep)


def test_a_call_may_carry_a_file_where_the_parser_is_quick() -> None:
    content = "x" * (MOST_CHARACTERS_OF_QUICK_PARSERS // 2)
    assert len(content) > MOST_CHARACTERS
    written = f'{{"name": "write", "arguments": {{"content": "{content}"}}}}'

    assert [call.status for call in parser().read(written, [])] == ["ok"]


# ── forced calls ──

HERMES: Any = SimpleNamespace(call_start="<tool_call>", call_end="</tool_call>")


def forced(text: str) -> tuple[EngineCall, ...]:
    return read_forced(text, HERMES)


def test_forced_calls_are_read_with_and_without_markers() -> None:
    call = FORMATS["json_tools"]

    assert forced(call) == forced(f"<tool_call>\n{call}\n</tool_call>") == (ADDED,)
    assert (
        forced(f"[{call}, {call}]")
        == forced(f"<tool_call>{call}</tool_call>\n<tool_call>{call}")
        == (ADDED,) * 2
    )


def test_a_forced_call_that_was_cut_off_is_reported_beside_the_whole_ones() -> None:
    text = FORMATS["json_tools"] + FORMATS["json_tools"][:-4]

    assert forced(text) == (ADDED, EngineCall("", text, status="invalid_json"))
    assert forced("") == (EngineCall("", "", status="invalid_json"),)


def test_a_marker_within_a_forced_call_is_its_text() -> None:
    [call] = forced('{"name": "say", "arguments": {"text": "</tool_call><tool_call>"}}')

    assert call == EngineCall("say", '{"text":"</tool_call><tool_call>"}')

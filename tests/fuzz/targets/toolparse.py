"""Target: the parsers of tool calls. Whatever they are given, a call comes out, or the text as it was."""

import json
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

import mlx_lm.tool_parsers

from tests.fuzz.pieces import text_of
from turnlog.adapters.mlx.toolparse import CallParser, read_forced
from turnlog.domain.ports import EngineCall
from turnlog.domain.tools import Tool

NAMES = sorted(module.name for module in iter_modules(mlx_lm.tool_parsers.__path__))
WORDS = (
    *(
        '{"name": "add"',
        '"arguments": ',
        '{"a": 1}',
        "</",
        "<",
        "<parameter=a>",
        "<function=add>",
        "<arg_key>",
    ),
    *(
        "<arg_value>",
        "[add(",
        "a=1",
        ")]",
        "call:add{",
        "<escape>",
        "<|tool_call_argument_begin|>",
        "functions.",
    ),
    *("functions.add:0", "<invoke name=", "[TOOL_CALLS]", "\\ud83d", "NaN", "1e999", "0x", "None", "'", '"'),
)
ADD = Tool("add", "function", "add", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
_LONGEST = 4_000
_DIALECT: Any = SimpleNamespace(call_start="<tool_call>", call_end="</tool_call>")


def parser(name: str) -> CallParser:
    """The parser of that name, as a model has it."""
    return CallParser(
        SimpleNamespace(tool_parser=import_module(f"mlx_lm.tool_parsers.{name}").parse_tool_call)
    )


PARSERS = [CallParser(SimpleNamespace(tool_parser=None)), *map(parser, NAMES)]


def one(given: bytes) -> None:
    """Judge one text by one parser."""
    text, _ = text_of(given[1:], WORDS)
    text = text[:_LONGEST]
    number = given[0] if given else 0
    for call in (*PARSERS[number % len(PARSERS)].read(text, [ADD]), *read_forced(text, _DIALECT)):
        if call.status == "ok":
            assert isinstance(json.loads(call.arguments), dict)
            assert call.name
            (call.name + call.arguments + (call.id or "")).encode()
        else:
            assert call == EngineCall("", text, status=call.status)

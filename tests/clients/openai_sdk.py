"""What the tests of the official Python client share: a tool, and what items say."""

import json
from collections.abc import Iterable
from typing import Any, Final

from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseCustomToolCall,
    ResponseFunctionToolCall,
    ResponseInputItemParam,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from openai.types.responses.namespace_tool_param import ToolFunction
from openai.types.responses.response_input_item_param import FunctionCallOutput

MODEL: Final = "scripted"

ADD: Final[FunctionToolParam] = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}

MEMBER: Final[ToolFunction] = {"type": "function", "name": "add", "parameters": ADD["parameters"]}
"""The same as a member of a namespace."""


def told(items: Iterable[ResponseOutputItem | Any]) -> list[tuple[Any, ...]]:
    """What each item says, without its ids. All of them are completed."""
    return [_told(item) for item in items]


def _told(item: ResponseOutputItem) -> tuple[Any, ...]:
    match item:
        case ResponseOutputMessage():
            assert item.status == "completed"
            texts = [part.text for part in item.content if part.type == "output_text"]
            return (item.type, item.role, "".join(texts))
        case ResponseReasoningItem():
            return (item.type, [part.text for part in item.summary])
        case ResponseFunctionToolCall():
            assert item.status == "completed"
            return (item.type, item.namespace, item.name, json.loads(item.arguments))
        case ResponseCustomToolCall():
            return (item.type, item.namespace, item.name, item.input)
        case _:
            raise AssertionError(f"no client asked for {item}")


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    """The calls the model made."""
    return [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]


def add(call: ResponseFunctionToolCall) -> FunctionCallOutput:
    """The tool, run."""
    numbers = json.loads(call.arguments)
    return {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": f"the sum is {numbers['a'] + numbers['b']}",
    }


def asking(text: str) -> list[ResponseInputItemParam]:
    """A user's question."""
    return [{"role": "user", "content": text}]

"""The items of `input`: every form that clients send is read, and a wrong one is refused by its place."""

from typing import Any

import pytest

from tests.adapters.openai.asking import ADD, FUNCTION, SAY, decode, pieces, refusal
from turnlog.domain.inputs import ItemReference
from turnlog.domain.messages import Image, Message, ToolCall

TEXT = {"type": "input_text", "text": "a"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}


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
    error = refusal(input=[SAY, item])

    assert (error.param, place in error.message) == ("input", True)


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


KEY = f"tl_{'k' * 43}"
"""It looks like a name, as every key does."""


def test_items_of_unknown_types_are_skipped_with_one_line_for_each_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a client calls its items may be anything, so a line has only the API's own names."""
    with caplog.at_level("INFO"):
        pieces(*({"type": kind} for kind in ("web_search_call", "web_search_call", "mcp_call", KEY)))

    assert [record.message for record in caplog.records] == [
        "[responses] skipping input items of type mcp_call",
        "[responses] skipping input items of type unknown (46 characters)",
        "[responses] skipping input items of type web_search_call",
    ]


def test_additional_tools_are_tools() -> None:
    request = decode(
        input=[{"role": "user", "content": "a"}, {"type": "additional_tools", "tools": [FUNCTION]}]
    )

    assert request.tools == (ADD,)


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

"""By what text and metadata a turn is found."""

from msgspec.structs import replace

from tests.domain.stories import CREATED
from turnlog.domain.audit.search import metadata_texts, searchable_text
from turnlog.domain.events import ItemClosed
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.response import fold


def test_a_turn_is_found_by_what_was_said_on_both_sides() -> None:
    spoken = (
        Message("user", "question"),
        Message("assistant", "", reasoning="thought", tool_calls=(ToolCall("c", "look", '{"a":1}'),)),
        Message("tool", "found it", call_id="c"),
    )
    items: list[Item] = [
        ReasoningItem("rs_1", "pondering"),
        MessageItem("msg_1", "completed", "answer"),
        FunctionCallItem("fc_1", "c1", "call", '{"b":2}', "completed"),
        CustomCallItem("ctc_1", "c2", "run", "ls -l", "completed"),
    ]
    unlisted = ItemClosed(
        at_ms=1, output_index=9, item=MessageItem("msg_2", "completed", "draft"), listed=False
    )
    closed = [ItemClosed(at_ms=1, output_index=n, item=item) for n, item in enumerate(items)]

    text = searchable_text(fold([replace(CREATED, input=spoken, instructions="be kind"), *closed, unlisted]))

    assert text.splitlines() == [
        "question",
        "thought",
        'look {"a":1}',
        "found it",
        "pondering",
        "answer",
        'call {"b":2}',
        "run ls -l",
    ]


def test_metadata_is_text_and_what_is_not_is_json() -> None:
    texts = metadata_texts({"a": "x", "b": 600, "c": True, "d": None, "e": {"f": [1]}})

    assert texts == {"a": "x", "b": "600", "c": "true", "d": "null", "e": '{"f":[1]}'}

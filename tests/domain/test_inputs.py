"""Input items as messages: which of them are one."""

import pytest

from turnlog.domain.inputs import join
from turnlog.domain.messages import Message, ToolCall

CALL = Message("assistant", "", tool_calls=(ToolCall("call_a", "add", "{}"),))
OTHER_CALL = Message("assistant", "", tool_calls=(ToolCall("call_b", "add", "{}"),))
THOUGHT = Message("assistant", "", reasoning="hm")
SAID = Message("assistant", "Let me see. ")
ASKED = Message("user", "hi")
OUTPUT = Message("tool", "3", call_id="call_a")


@pytest.mark.parametrize(
    ("pieces", "messages"),
    [
        ([], []),
        ([ASKED, ASKED], [ASKED, ASKED]),
        (
            [THOUGHT, SAID, CALL, OTHER_CALL],
            [
                Message(
                    "assistant",
                    "Let me see. ",
                    reasoning="hm",
                    tool_calls=(*CALL.tool_calls, *OTHER_CALL.tool_calls),
                )
            ],
        ),
        ([SAID, THOUGHT], [Message("assistant", "Let me see. ", reasoning="hm")]),
        ([THOUGHT, ASKED, SAID], [THOUGHT, ASKED, SAID]),
        ([CALL, OUTPUT, SAID], [CALL, OUTPUT, SAID]),
        ([CALL, SAID], [CALL, SAID]),
        ([SAID, SAID, ASKED], [Message("assistant", "Let me see. Let me see. "), ASKED]),
    ],
    ids=["nothing", "users", "a run", "any order", "user ends", "output ends", "text after a call", "texts"],
)
def test_a_run_of_assistant_items_is_one_message(pieces: list[Message], messages: list[Message]) -> None:
    """R-161: a message that follows a call begins a new turn of the assistant."""
    assert join(pieces) == messages

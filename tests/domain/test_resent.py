"""What a continuation sends again is known by ids or by the whole transcript; the rest is new (D-39)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.resent import Sent, new_messages

case = pytest.param

USER = Message("user", "hi")
YES = Message("user", "yes")
ANSWER = Message("assistant", "Hello")
THOUGHT = Message("assistant", "", reasoning="hm")
NEW = Message("user", "and now?")


def call(call_id: str, arguments: str = '{"x": 1, "y": 2}') -> Message:
    """A call as it is sent."""
    return Message("assistant", "", tool_calls=(ToolCall(call_id, "add", arguments),))


def output(call_id: str, content: str = "3") -> Message:
    """The client's answer to a call."""
    return Message("tool", content, call_id=call_id)


A, B = output("a"), output("b")
CALLS = Message(
    "assistant", "Let me see.", reasoning="hm", tool_calls=(*call("a").tool_calls, *call("b").tool_calls)
)
OPEN = (USER, CALLS)
SETTLED = (*OPEN, A, B, ANSWER)


def new(sent: Sequence[Message | Sent], history: Sequence[Message], *item_ids: str) -> list[Message]:
    """What is new in a request; items have ids only if they say so."""
    items = [each if isinstance(each, Sent) else Sent(each) for each in sent]
    return new_messages(items, history, item_ids)


@pytest.mark.parametrize(
    ("sent", "history", "expected"),
    [
        case([NEW, A, B], OPEN, [A, B, NEW], id="outputs come first, wherever they stood"),
        case([A, NEW, B], OPEN, [A, B, NEW], id="between other messages"),
        case([call("a"), A, call("b"), B], OPEN, [A, B], id="each call with its output"),
        case([call("b", "{}"), call("a"), B, A], OPEN, [B, A], id="whatever the echo says"),
        case([A, NEW], SETTLED, [NEW], id="an output the chain has"),
        case([A, A, NEW], SETTLED, [A, NEW], id="which it has once"),
        case(
            [output("a", "4"), NEW], SETTLED, [output("a", "4"), NEW], id="another output is not the chain's"
        ),
        case([call("x"), output("x")], SETTLED, [output("x"), call("x")], id="a call the chain never made"),
    ],
)
def test_calls_and_outputs_are_paired_by_their_call_id(
    sent: list[Message], history: tuple[Message, ...], expected: list[Message]
) -> None:
    assert new(sent, history) == expected


def test_items_of_the_chain_are_known_by_their_id_wherever_they_stand() -> None:
    sent: list[Message | Sent] = [
        NEW,
        Sent(ANSWER, "msg_1"),
        Sent(THOUGHT, "rs_1"),
        Sent(ANSWER, "msg_other"),
    ]

    assert new(sent, (USER, ANSWER), "msg_1", "rs_1") == [NEW, ANSWER]


@pytest.mark.parametrize(
    "again",
    [
        case(
            [USER, Message("assistant", "Let me see."), call("a"), call("b"), A, B, ANSWER], id="item by item"
        ),
        case(
            [USER, THOUGHT, Message("assistant", "Let me see."), call("a"), call("b"), A, B, ANSWER],
            id="reasoning",
        ),
        case(
            [USER, Message("assistant", "Let me see."), call("a", '{"y":2,"x":1}'), call("b"), B, A, ANSWER],
            id="arguments as JSON, outputs in any order",
        ),
        case(
            [
                USER,
                Message("assistant", "Let me "),
                Message("assistant", "see."),
                call("a"),
                call("b"),
                A,
                B,
                ANSWER,
            ],
            id="a text in parts",
        ),
        case(list(SETTLED), id="message by message"),
    ],
)
def test_the_whole_transcript_at_the_beginning_is_the_chains_own(again: list[Message]) -> None:
    assert new([*again, NEW], SETTLED) == [NEW]
    assert new(again, SETTLED) == []


@pytest.mark.parametrize(
    ("sent", "history", "expected"),
    [
        case([YES], (YES, ANSWER), [YES], id="who says yes twice is heard twice"),
        case([ANSWER, NEW], (USER, ANSWER), [ANSWER, NEW], id="the end of it"),
        case([USER, NEW], (USER, ANSWER), [USER, NEW], id="the beginning of it"),
        case([NEW, USER, ANSWER], (USER, ANSWER), [NEW, USER, ANSWER], id="not at the beginning"),
        case([USER, Message("assistant", "hello"), NEW], (USER, ANSWER), None, id="another text"),
        case([Message("system", "hi"), ANSWER, NEW], (USER, ANSWER), None, id="another role"),
        case([USER], (), [USER], id="nothing to repeat"),
    ],
)
def test_anything_less_is_new(
    sent: list[Message], history: tuple[Message, ...], expected: list[Message] | None
) -> None:
    assert new(sent, history) == (sent if expected is None else expected)


said = st.sampled_from([USER, YES, ANSWER, NEW, Message("system", "Be kind.")])


@given(st.lists(said, min_size=1, max_size=6), st.lists(said, max_size=4))
def test_what_follows_the_transcript_is_new(history: list[Message], more: list[Message]) -> None:
    # A text that goes on behind the transcript is another text.
    if history[-1].role == "assistant" and more and more[0].role == "assistant":
        more = [NEW, *more]

    assert new([*history, *more], history) == more

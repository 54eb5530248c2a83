"""A chat's history is the transcript of the turn that it goes on from, in whatever form it is sent."""

from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, FAILED, STARTED
from turnlog.domain.audit.transcripts import history_digest, transcript_digest
from turnlog.domain.events import ItemClosed, ResponseCreated
from turnlog.domain.items import FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.response import Response, fold

ASKED = Message("user", "hi")


def created(*messages: Message) -> ResponseCreated:
    """A chat with these messages."""
    return replace(CREATED, surface="chat", input=messages)


def answered(*items: Item, to: ResponseCreated) -> Response:
    """The chat with an answer of these items."""
    closed = (ItemClosed(at_ms=0, output_index=n, item=item) for n, item in enumerate(items))
    return fold([to, STARTED, *closed, COMMITTED])


def test_a_history_is_known_without_its_reasoning_and_under_other_instructions() -> None:
    first = answered(
        ReasoningItem("rs_1", "hm"),
        MessageItem("msg_1", "completed", "Hello"),
        to=created(Message("system", "It is noon."), ASKED),
    )

    second = created(
        Message("system", "It is one."), ASKED, Message("assistant", "Hello"), Message("user", "go on")
    )

    assert history_digest(second) == transcript_digest(first)


def test_calls_are_known_whatever_the_spacing_of_their_arguments() -> None:
    call = FunctionCallItem("fc_1", "call_a", "add", '{"a":1,"b":2}', "completed")
    first = answered(call, to=created(ASKED))

    echo = Message("assistant", "", tool_calls=(ToolCall("call_a", "add", '{"b": 2, "a": 1}'),))
    second = created(ASKED, echo, Message("tool", "3", call_id="call_a"))

    assert history_digest(second) == transcript_digest(first)


def test_what_says_something_else_is_another_history() -> None:
    first = answered(MessageItem("msg_1", "completed", "Hello"), to=created(ASKED))
    others = [
        created(Message("user", "ho"), Message("assistant", "Hello"), ASKED),
        created(ASKED, Message("assistant", "Hello!"), ASKED),
        created(ASKED, Message("assistant", "Hello"), ASKED, Message("assistant", "Hello"), ASKED),
    ]

    assert transcript_digest(first) not in map(history_digest, others)


def test_only_chats_have_a_history_and_only_committed_ones_a_transcript() -> None:
    assert history_digest(created(ASKED)) is None
    assert history_digest(replace(CREATED, input=(ASKED, Message("assistant", "Hello")))) is None
    assert transcript_digest(fold([created(ASKED), FAILED])) is None
    assert transcript_digest(fold([CREATED, STARTED, COMMITTED])) is None

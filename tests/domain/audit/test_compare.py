"""Two turns beside each other."""

from typing import Any

from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, FAILED, NOON_MS, STARTED
from turnlog.domain.audit.compare import (
    MOST_DIFF_LINES,
    Comparison,
    InputDifference,
    Pair,
    TextDifference,
    TokenDifference,
    compare,
)
from turnlog.domain.audit.seen import Seen
from turnlog.domain.events import ItemClosed, ResponseEvent, TurnCommitted
from turnlog.domain.items import FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.messages import Message
from turnlog.domain.response import Response, fold_stored
from turnlog.domain.tokens import pack, record_prompt

SAME = TextDifference(same=True, first_difference=None, around=None, diff=[])


def turn(
    *items: Item,
    ended: ResponseEvent = COMMITTED,
    started: dict[str, Any] | None = None,
    ids: list[int] | None = None,
    **fields: Any,
) -> Response:
    """A turn that said these items; `fields` are of what was asked."""
    if isinstance(ended, TurnCommitted) and ids is not None:
        ended = replace(ended, output_ids=pack(ids))
    return fold_stored(
        [
            replace(CREATED, **fields),
            replace(STARTED, **started or {}),
            *(ItemClosed(at_ms=NOON_MS, output_index=n, item=item) for n, item in enumerate(items)),
            ended,
        ]
    )


def said(text: str) -> MessageItem:
    return MessageItem("msg_1", "completed", text)


def test_a_turn_is_the_same_as_itself() -> None:
    one = turn(said("Hello"), ReasoningItem("rs_1", "hm"), ids=[4, 5])

    found = compare(one, one)

    assert found == Comparison(
        ids=Pair("resp_1", "resp_1", same=True),
        input=InputDifference(same=True, differs=[]),
        prompt=Pair(digest := record_prompt((1, 2, 3)).digest, digest, same=True),
        parameters={},
        model_fingerprint=Pair("m", "m", same=True),
        text=SAME,
        reasoning=SAME,
        tool_calls=Pair([], [], same=True),
        tokens=TokenDifference(same=True, count=Pair(2, 2, same=True), first_difference=None, ids=None),
        ended=found.ended,
    )
    assert found.ended.same
    assert found.ended.a.usage == {
        "input_tokens": 3,
        "output_tokens": 2,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
    }
    assert (found.ended.a.status, found.ended.a.queue_ms, found.ended.a.duration_ms) == (
        "completed",
        10.0,
        2000,
    )


def test_parameters_that_differ_are_named_and_others_are_not() -> None:
    other = replace(CREATED.sampling, temperature=0.2, stop=("\n",))

    found = compare(turn(), turn(model="big", sampling=other, max_output_tokens=5))

    assert found.parameters == {
        "model": Pair("tiny", "big", same=False),
        "max_output_tokens": Pair(None, 5, same=False),
        "temperature": Pair(1.0, 0.2, same=False),
        "stop": Pair((), ("\n",), same=False),
    }


def test_input_is_compared_message_by_message() -> None:
    asked = Seen([Message("system", "Be nice"), Message("user", "hi")])
    other = Seen([Message("user", "hi"), Message("user", "hi"), Message("user", "more")])

    found = compare(turn(), turn(instructions="x"), (asked, other))

    assert found.input == InputDifference(
        same=False,
        differs=["instructions", "messages[0].role", "messages[0].content", "number of messages (2 and 3)"],
    )


def test_a_conversation_that_is_partly_gone_is_compared_by_what_each_request_brought() -> None:
    whole, cut = Seen([Message("user", "hi")]), Seen([], missing="resp_0")

    for seen in ((whole, None), (whole, cut), (cut, whole)):
        assert compare(turn(), turn(), seen).input.same


def test_texts_are_told_apart_by_line_and_by_character() -> None:
    found = compare(turn(said("one\ntwo")), turn(said("one\ntoo")))

    assert found.text == TextDifference(
        same=False,
        first_difference=5,
        around=Pair("one\ntwo", "one\ntoo", same=False),
        diff=["--- a", "+++ b", "@@ -1,2 +1,2 @@", " one", "-two", "+too"],
    )


def test_a_text_that_goes_on_differs_from_where_the_other_ends() -> None:
    assert compare(turn(said("Hel")), turn(said("Hello"))).text.first_difference == 3


def test_very_long_texts_are_not_compared_by_line() -> None:
    long = "\n" * (MOST_DIFF_LINES + 1)

    found = compare(turn(said(long + "a")), turn(said(long + "b")))

    assert (found.text.same, found.text.first_difference, found.text.diff) == (False, len(long), [])


def test_the_first_token_that_differs_is_named() -> None:
    found = compare(turn(ids=[4, 5, 6]), turn(ids=[4, 9, 6]))

    assert found.tokens == TokenDifference(
        same=False, count=Pair(3, 3, same=True), first_difference=1, ids=Pair(5, 9, same=False)
    )


def test_an_output_that_goes_on_differs_where_the_other_has_no_token() -> None:
    found = compare(turn(ids=[4]), turn(ids=[4, 9]))

    assert found.tokens == TokenDifference(
        same=False, count=Pair(1, 2, same=False), first_difference=1, ids=Pair(None, 9, same=False)
    )


def test_ids_of_other_tokenizers_or_unknown_ones_are_not_compared() -> None:
    elsewhere = {"tokenizer_fingerprint": "other"}

    assert compare(turn(ids=[4]), turn(ids=[4], started=elsewhere)).tokens is None
    assert compare(turn(ids=[4]), turn()).tokens is None


def test_calls_are_the_same_if_names_and_arguments_are() -> None:
    def calls(call_id: str, arguments: str) -> Response:
        return turn(FunctionCallItem(call_id, call_id, "add", arguments, "completed"))

    assert compare(calls("fc_1", "{}"), calls("fc_2", "{}")).tool_calls.same
    assert compare(calls("fc_1", "{}"), calls("fc_1", "[]")).tool_calls == Pair(
        [["add", "{}"]], [["add", "[]"]], same=False
    )


def test_a_turn_that_never_started_has_no_prompt_to_compare() -> None:
    failed = fold_stored([CREATED, FAILED])

    found = compare(failed, turn())

    assert (found.prompt.a, found.prompt.same, found.model_fingerprint.same) == (None, None, None)
    assert (found.ended.a.reason, found.ended.same) == ("error", False)

"""The assembler: what the engine says becomes items, whole and in order."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.engine_scripts import chunks, ends, play, stories
from turnlog.domain.events import (
    ItemClosed,
    ItemExtended,
    ItemOpened,
    ReasoningDropped,
    ResponseEvent,
    TurnFailed,
)
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, Logprob, MessageItem, ReasoningItem
from turnlog.domain.ports import End, EngineCall, EngineChunk, FinishReason, ReasoningChunk, TextChunk
from turnlog.domain.response import Response, api_status, fold

CALL = EngineCall(name="add", arguments='{"a":1}', id="call_a")


def end(
    text: str,
    *calls: EngineCall,
    thinking: str | None = None,
    finish_reason: FinishReason = "stop",
) -> End:
    """An engine's end with counts that do not matter."""
    return End(
        finish_reason=finish_reason,
        text=text,
        thinking=thinking,
        tool_calls=calls,
        prompt_tokens=3,
        output_tokens=2,
    )


def told(events: Sequence[ResponseEvent]) -> list[str]:
    """The items' part of a story in short: `+msg` opens, `msg "text"` extends, `-msg` closes."""
    lines = []
    for event in events:
        match event:
            case ItemOpened(item=item):
                lines.append(f"+{_short(item.id)}")
            case ItemExtended(item_id=item_id, deltas=deltas):
                lines += [f"{_short(item_id)} {delta}" for delta in deltas]
            case ItemClosed(item=item, listed=listed):
                lines.append(f"-{_short(item.id)}{'' if listed else ' unlisted'}")
            case ReasoningDropped(text=text):
                lines.append(f"dropped {text}")
    return lines


def _short(item_id: str) -> str:
    return item_id.split("_", maxsplit=1)[0]


def output(*spoken: EngineChunk, ending: End | None) -> list[Item]:
    """The listed items of the turn."""
    return fold(play(spoken, ending)).items


def test_text_becomes_one_message() -> None:
    """R-274, R-285, R-292."""
    story = play([TextChunk("Hel"), TextChunk("lo")], end("Hello"))

    assert told(story) == ["+msg", "msg Hel", "msg lo", "-msg"]
    assert fold(story).items == [MessageItem("msg_1", "completed", "Hello")]


def test_reasoning_is_closed_before_the_message_opens() -> None:
    """R-268, R-269, R-276, R-293, G-122."""
    story = play([ReasoningChunk("hm"), TextChunk("Hi")], end("Hi", thinking="hm"))

    assert told(story) == ["+rs", "rs hm", "-rs", "+msg", "msg Hi", "-msg"]


def test_the_first_text_closes_the_reasoning_even_if_it_is_held_back() -> None:
    """R-269."""
    story = play([ReasoningChunk("hm"), TextChunk("<tool")], None)

    assert told(story) == ["+rs", "rs hm", "-rs"]


def test_the_end_of_thinking_is_never_shown() -> None:
    """R-267."""
    assert told(play([ReasoningChunk("</think>")], None)) == []
    assert told(play([ReasoningChunk("so</think>")], None)) == ["+rs", "rs so", "-rs"]


def test_late_reasoning_is_dropped_from_the_stream_and_kept_in_the_log() -> None:
    """D-21, R-270."""
    story = play([ReasoningChunk("a"), TextChunk("Hi"), ReasoningChunk("b")], end("Hi"))

    assert told(story) == ["+rs", "rs a", "-rs", "+msg", "msg Hi", "dropped b", "-msg"]


def test_reasoning_after_text_keeps_its_own_index() -> None:
    """R-277."""
    story = play([TextChunk("Hi"), ReasoningChunk("hm")], end("Hi"))

    indexes = [(event.item.id, event.output_index) for event in story if isinstance(event, ItemClosed)]
    assert indexes == [("rs_2", 1), ("msg_1", 0)]


def test_reasoning_told_only_at_the_end_is_told_all_the_same() -> None:
    """R-251."""
    assert told(play([], end("Hi", thinking="hm"))) == ["+rs", "rs hm", "-rs", "+msg", "msg Hi", "-msg"]


def test_a_turn_that_says_nothing_has_an_empty_message() -> None:
    """D-20, R-290."""
    assert output(ending=end("")) == [MessageItem("msg_1", "completed", "")]


def test_a_turn_that_only_thinks_has_an_empty_message_too() -> None:
    """D-20, R-294."""
    items = output(ReasoningChunk("hm"), ending=end("", thinking="hm"))

    assert items == [ReasoningItem("rs_1", "hm"), MessageItem("msg_2", "completed", "")]


def test_text_that_comes_only_at_the_end_is_one_delta() -> None:
    """R-284, R-300."""
    assert told(play([], end("Hello"))) == ["+msg", "msg Hello", "-msg"]


@pytest.mark.parametrize(
    ("streamed", "final", "added"),
    [
        ("Hello", "Hello world", [" world"]),
        ("Hello world", "Hello", []),
        ("  Hello", "Hello you", [" you"]),
    ],
)
def test_the_final_text_is_authoritative(streamed: str, final: str, added: list[str]) -> None:
    """R-281, R-283, R-288, R-301, R-302."""
    story = play([TextChunk(streamed)], end(final))

    assert told(story) == ["+msg", f"msg {streamed}", *(f"msg {delta}" for delta in added), "-msg"]
    assert fold(story).items == [MessageItem("msg_1", "completed", final)]


def test_a_tag_without_a_call_gives_its_text_back() -> None:
    """R-279, R-280, R-298, G-123, G-124, G-125."""
    assert told(play([TextChunk("<tool_call>bad")], end("<tool_call>bad"))) == [
        "+msg",
        "msg <tool_call>bad",
        "-msg",
    ]
    assert told(play([TextChunk("\n\n"), TextChunk("<tool_call>{")], end("<tool_call>{"))) == [
        "+msg",
        "msg \n\n",
        "msg <tool_call>{",
        "-msg",
    ]
    preamble = play(
        [TextChunk("Let me check. "), TextChunk("<tool_call>x</tool_call>")], end("Let me check.")
    )
    assert told(preamble) == ["+msg", "msg Let me check. ", "-msg"]
    newlines = play([TextChunk("\n" * 80), TextChunk("<tool_call>x")], end("<tool_call>x"))
    assert told(newlines)[-2:] == ["msg <tool_call>x", "-msg"]


def test_calls_are_offered_whole_once_the_turn_is_committed() -> None:
    """R-287, R-295, R-314, D-33, G-126."""
    story = play([TextChunk("\n<tool_call>{}")], end("", CALL, finish_reason="tool_calls"))

    assert told(story) == ["+fc", 'fc {"a":1}', "-fc"]
    opened = next(event for event in story if isinstance(event, ItemOpened))
    assert opened.item == FunctionCallItem("fc_1", "call_a", "add", "", "in_progress")
    assert fold(story).items == [FunctionCallItem("fc_1", "call_a", "add", '{"a":1}', "completed")]


def test_text_before_calls_is_a_message_of_its_own() -> None:
    """R-296, R-289."""
    story = play([TextChunk("Sure. "), TextChunk("<tool_call>{}")], end("Sure.", CALL))

    assert told(story) == ["+msg", "msg Sure. ", "-msg", "+fc", 'fc {"a":1}', "-fc"]


def test_final_text_beyond_the_streamed_part_of_a_call_is_only_in_what_is_done() -> None:
    """R-289: no delta follows what a client takes for the whole text."""
    story = play([TextChunk("Sure. "), TextChunk("<tool_call>{}")], end("Sure. And more.", CALL))

    assert told(story) == ["+msg", "msg Sure. ", "-msg", "+fc", 'fc {"a":1}', "-fc"]
    assert fold(story).items[0] == MessageItem("msg_1", "completed", "Sure. And more.")


def test_a_message_that_turned_out_to_be_white_space_is_left_out_and_keeps_its_index() -> None:
    """R-286, R-297, G-127."""
    story = play([TextChunk("\n"), TextChunk("<tool_call>{}")], end("", CALL))

    assert told(story) == ["+msg", "msg \n", "-msg unlisted", "+fc", 'fc {"a":1}', "-fc"]
    assert [event.output_index for event in story if isinstance(event, ItemOpened)] == [0, 1]
    assert [item.id for item in fold(story).items] == ["fc_2"]


def test_calls_that_could_not_be_parsed_are_not_offered() -> None:
    """R-254."""
    broken = EngineCall(name="add", arguments="{", id="call_a", status="invalid_json")

    assert told(play([TextChunk("Hi")], end("Hi", broken))) == ["+msg", "msg Hi", "-msg"]


def test_a_call_without_an_id_gets_one() -> None:
    """R-010, R-254."""
    (item,) = output(ending=end("", EngineCall(name="add", arguments="{}")))

    assert isinstance(item, FunctionCallItem)
    assert item.call_id.startswith("call_")


def test_a_turn_cut_by_its_limit_is_incomplete_and_so_is_its_message() -> None:
    """R-250, R-350, D-02, D12."""
    response = fold(play([TextChunk("Hel")], end("Hel", finish_reason="length")))

    assert api_status(response) == "incomplete"
    assert response.items == [MessageItem("msg_1", "incomplete", "Hel")]


def test_a_failure_closes_what_is_open_with_what_was_streamed() -> None:
    """R-303, R-304, R-319, G-132."""
    assert output(TextChunk("Hel"), ending=None) == [MessageItem("msg_1", "incomplete", "Hel")]
    assert output(ReasoningChunk("hm"), ending=None) == [ReasoningItem("rs_1", "hm")]
    assert output(ending=None) == []


def test_a_failure_closes_the_message_before_the_reasoning() -> None:
    """R-319."""
    story = play([TextChunk("Hi"), ReasoningChunk("hm")], None)

    assert told(story)[-2:] == ["-msg", "-rs"]


def test_an_end_with_an_error_keeps_what_was_closed_and_offers_no_call() -> None:
    """R-305, R-318, R-321, R-323, R-324, G-130, G-140, G-141."""
    story = play([TextChunk("Hi")], end("Hi", CALL, finish_reason="error"))
    response = fold(story)

    assert told(story) == ["+msg", "msg Hi", "-msg"]
    assert response.items == [
        MessageItem("msg_1", "incomplete", "Hi"),
        FunctionCallItem("fc_2", "call_a", "add", '{"a":1}', "incomplete"),
    ]
    assert isinstance(response.ended, TurnFailed)
    assert response.ended.reason == "finish_reason_error"
    assert response.ended.usage.output_tokens == 2


@given(stories)
def test_every_item_that_begins_ends_once_and_no_index_is_used_twice(story: list[ResponseEvent]) -> None:
    """R-265, R-266."""
    opened = [(event.item.id, event.output_index) for event in story if isinstance(event, ItemOpened)]
    closed = [(event.item.id, event.output_index) for event in story if isinstance(event, ItemClosed)]

    assert sorted(opened) == sorted(closed)
    assert [index for _, index in opened] == list(range(len(opened)))


@given(stories)
def test_every_prefix_of_a_story_folds(story: list[ResponseEvent]) -> None:
    for length in range(1, len(story) + 1):
        assert isinstance(fold(story[:length]), Response)


@given(chunks, ends)
def test_the_message_says_what_the_engine_said_in_the_end(spoken: list[EngineChunk], ending: End) -> None:
    """R-278."""
    messages = [item.text for item in output(*spoken, ending=ending) if isinstance(item, MessageItem)]

    assert "".join(messages) == ending.text


def runs(pieces: Sequence[EngineChunk]) -> list[EngineChunk]:
    """The chunks with neighbours of one kind joined: what the engine said, uncut."""
    joined: list[EngineChunk] = []
    for piece in pieces:
        if joined and type(joined[-1]) is type(piece):
            joined[-1] = type(piece)(joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


@given(chunks, st.none() | ends, st.data())
def test_where_the_engines_text_is_cut_changes_nothing_but_the_boundaries_of_deltas(
    spoken: list[EngineChunk], ending: End | None, data: st.DataObject
) -> None:
    """R-272, R-273: white space beside a structural tag set aside."""
    whole = runs(spoken)
    cut: list[EngineChunk] = []
    for chunk in whole:
        places = data.draw(st.sets(st.integers(1, max(len(chunk.text) - 1, 1))))
        edges = sorted({0, *places, len(chunk.text)})
        cut += [type(chunk)(chunk.text[a:b]) for a, b in pairwise(edges)]

    assert said(play(cut, ending)) == said(play(whole, ending))


def said(story: Sequence[ResponseEvent]) -> list[tuple[str, str]]:
    """What each listed item holds and what was streamed of it, without white space at the ends."""
    streamed: dict[str, str] = {}
    for event in story:
        if isinstance(event, ItemExtended):
            streamed[event.item_id] = streamed.get(event.item_id, "") + "".join(event.deltas)
    told = [
        (type(item).__name__ + text_of(item).strip(), streamed.get(item.id, "").strip())
        for item in fold(story).items
    ]
    return [each for each in told if each != ("MessageItem", "")]


def text_of(item: Item) -> str:
    """The text in an item of any kind."""
    match item:
        case FunctionCallItem(arguments=text) | CustomCallItem(input=text):
            return text
        case MessageItem(text=text) | ReasoningItem(text=text):
            return text


def test_a_custom_call_is_its_input_and_a_member_has_its_namespace() -> None:
    """D-07."""
    tools: list[dict[str, Any]] = [
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "fs", "tools": [{"type": "function", "name": "read"}]},
    ]
    calls = (
        EngineCall(name="patch", arguments='{"input":"*** x"}', id="a"),
        EngineCall(name="fs__read", arguments="{}", id="b"),
        EngineCall(name="read", arguments="{}", id="c"),
        EngineCall(name="other", arguments="{}", id="d"),
    )

    events = play([], end("", *calls), tools)

    assert [event.item for event in events if isinstance(event, ItemClosed)] == [
        CustomCallItem("ctc_1", "a", "patch", "*** x", "completed"),
        FunctionCallItem("fc_2", "b", "read", "{}", "completed", "fs"),
        FunctionCallItem("fc_3", "c", "read", "{}", "completed", "fs"),
        FunctionCallItem("fc_4", "d", "other", "{}", "completed"),
    ]


def test_a_custom_call_of_another_form_is_passed_on_as_it_is() -> None:
    events = play([], end("", EngineCall(name="patch", arguments="*** x")))

    closed = next(event.item for event in events if isinstance(event, ItemClosed))
    assert isinstance(closed, CustomCallItem)
    assert closed.input == "*** x"


def test_log_probabilities_come_with_the_text_that_shows_their_tokens() -> None:
    held, shown = Logprob("<", -1.0), Logprob(" 10", -0.5, (("x", -2.0),))

    story = play([TextChunk("<", (held,)), TextChunk(" 10", (shown,))], end("< 10"))

    (extended,) = [event for event in story if isinstance(event, ItemExtended)]
    assert (extended.deltas, extended.logprobs) == (("< 10",), ((held, shown),))
    assert fold(story).items == [MessageItem("msg_1", "completed", "< 10", (held, shown))]

"""Thinking, answer and calls are told apart in a text, wherever the text is cut."""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from turnlog.adapters.mlx.chat_format import ANSWER, CALL, THINKING, Markers
from turnlog.adapters.mlx.output_parser import OutputParser
from turnlog.adapters.mlx.toolparse import CallParser, read_forced
from turnlog.domain.items import Logprob
from turnlog.domain.ports import EngineCall, EngineChunk, ReasoningChunk, TextChunk

MARKERS: Markers = {
    ANSWER: (("<think>", THINKING), ("</think>", ANSWER), ("<tool_call>", CALL)),
    THINKING: (("</think>", ANSWER), ("<think>", THINKING), ("<tool_call>", CALL)),
    CALL: (("</tool_call>", ANSWER),),
}
UNMARKED: Markers = {ANSWER: (("<tool_call>", CALL),), THINKING: (), CALL: (("</tool_call>", ANSWER),)}

ADD = '{"name": "add", "arguments": {"a": 1}}'
ADDED = EngineCall("add", '{"a":1}')


class Said(Struct, frozen=True):
    """What a turn said: what was shown of it on the way, and what it came to."""

    shown: str
    shown_thought: str
    text: str
    thought: str | None = None
    calls: tuple[EngineCall, ...] = ()
    stopped: bool = False


def said(parser: OutputParser, pieces: Iterable[str]) -> Said:
    chunks: list[EngineChunk] = []
    for piece in pieces:
        if not parser.stopped:
            chunks += parser.receive(piece)
    chunks += parser.end()
    assert all(chunk.text for chunk in chunks)
    return Said(
        shown="".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)),
        shown_thought="".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk)),
        text=parser.text,
        thought=parser.thought,
        calls=parser.calls,
        stopped=parser.stopped,
    )


read_json = partial(CallParser(SimpleNamespace(tool_parser=None)).read, tools=[])
thinking_model = partial(OutputParser, MARKERS)
tool_user = partial(OutputParser, MARKERS, parse=read_json)


def test_plain_text_is_said_as_it_comes() -> None:
    parser = OutputParser(UNMARKED)

    chunks = [parser.receive(piece) for piece in ("\nHi", " <", "b> \n")]

    assert chunks == [[TextChunk("\nHi")], [TextChunk(" <")], [TextChunk("b> \n")]]
    assert parser.end() == []
    assert parser.text == "\nHi <b> \n"


def test_thinking_is_told_apart_and_markers_are_never_shown() -> None:
    """F5, R-165: the thinking of a model is no part of its answer."""
    assert said(thinking_model(), ["<think>\nLet me see.\n</think>\n\nHi."]) == Said(
        "Hi.", "Let me see.", "Hi.", "Let me see."
    )


def test_a_prompt_may_have_begun_the_thinking() -> None:
    assert said(thinking_model(begins_with=THINKING), ["Hm.\n</think>\n\nHi."]) == Said(
        "Hi.", "Hm.", "Hi.", "Hm."
    )


def test_a_budget_that_ends_in_a_thought_leaves_no_answer() -> None:
    assert said(thinking_model(begins_with=THINKING), ["Hm. </thi"]) == Said("", "Hm. </thi", "", "Hm. </thi")


def test_an_empty_thought_is_none() -> None:
    assert said(thinking_model(), ["<think>\n\n</think>\n\nHi."]) == Said("Hi.", "", "Hi.")


def test_markers_out_of_place_are_dropped() -> None:
    assert said(thinking_model(), ["a</think>b<think>c<think>d</think>e"]) == Said("abe", "cd", "abe", "cd")


def test_a_model_may_think_again() -> None:
    text = "\n<think>c\n</think>\na \n<think>\nd</think>\nb"

    assert said(thinking_model(), [text]) == Said("a \n\nb", "c\n\nd", "a \n\nb", "c\n\nd")


def test_a_call_is_taken_out_of_the_text() -> None:
    """C15, R-254: no markup of a call in the text, and a call for each."""
    text = f"I add.\n<tool_call>\n{ADD}\n</tool_call>\n<tool_call>{ADD}</tool_call>"

    assert said(tool_user(), [text]) == Said("I add.", "", "I add.", calls=(ADDED, ADDED))


def test_white_space_before_a_call_opens_no_answer() -> None:
    assert said(tool_user(), [f"\n\n<tool_call>{ADD}</tool_call>\n"]) == Said("", "", "", calls=(ADDED,))


def test_a_thinking_model_calls() -> None:
    """C16: a call is found after thinking, and even in the middle of it."""
    after = said(tool_user(), [f"<think>Hm.</think>\n\n<tool_call>{ADD}</tool_call>"])
    within = said(tool_user(), [f"<think>Hm.<tool_call>{ADD}</tool_call>"])

    assert after == within == Said("", "Hm.", "", "Hm.", (ADDED,))


def test_what_cannot_be_read_as_a_call_stays_in_the_text() -> None:
    """C18: a turn never loses what the model said."""
    text = "I add. <tool_call>{broken</tool_call> Done."

    assert said(tool_user(), [text]) == Said(
        "I add.", "", text, calls=(EngineCall("", "{broken", status="invalid_json"),)
    )


def test_a_call_without_its_end_marker_is_read_if_it_is_whole() -> None:
    whole, cut = (said(tool_user(), [f"<tool_call>{call}"]) for call in (ADD, ADD[:-3]))

    assert whole.calls == (ADDED,)
    assert cut.text == f"<tool_call>{ADD[:-3]}"


def test_text_after_a_call_is_kept_for_the_end() -> None:
    assert said(tool_user(), [f"A\n<tool_call>{ADD}</tool_call>\nB"]) == Said(
        "A", "", "A\n\nB", calls=(ADDED,)
    )


def test_without_tools_the_markers_of_calls_are_text() -> None:
    text = f"<tool_call>{ADD}</tool_call>"

    assert said(thinking_model(), [text]) == Said(text, "", text)


def test_a_stop_text_ends_the_answer_and_is_no_part_of_it() -> None:
    assert said(thinking_model(stop=("END", "ST")), ["Hi EN", "D. More."]) == Said(
        "Hi ", "", "Hi ", stopped=True
    )


def test_the_stop_text_that_is_complete_first_ends_the_answer() -> None:
    stops = ("STOP", "TO", "HALT", "ALT")

    assert said(thinking_model(stop=stops), ["a STOP"]).text == "a S"
    assert said(thinking_model(stop=stops), ["a HALT"]).text == "a "


def test_stop_texts_do_not_count_in_thinking_or_calls() -> None:
    text = f"<think>a add</think>b<tool_call>{ADD}</tool_call>"

    assert said(tool_user(stop=("add",)), [text]) == Said("b", "a add", "b", "a add", (ADDED,))


def test_a_guided_answer_has_no_markers() -> None:
    text = '{"a": "</think><tool_call>"}'
    guided = thinking_model(begins_with=THINKING, shape="json")

    assert said(guided, [f"Hm.</think>{text}"]) == Said(text, "Hm.", text, "Hm.")


def test_a_forced_answer_is_calls_only() -> None:
    forced = tool_user(begins_with=THINKING, shape="calls")

    assert said(forced, [f"Hm.</think>{ADD}"]) == Said("", "Hm.", "", "Hm.", (ADDED,))


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_an_answer_that_may_be_json_or_calls_is_what_it_begins_with(cut: int) -> None:
    """A marker inside the JSON is text."""
    text = '{"a": "<tool_call>"}'
    call = f"<tool_call>\n{ADD}\n</tool_call>"
    spoken = {each: [each[at : at + cut] for at in range(0, len(each), cut)] for each in (text, call)}

    chat_format: Any = SimpleNamespace(call_start="<tool_call>", call_end="</tool_call>")
    either = partial(
        OutputParser, MARKERS, parse=partial(read_forced, chat_format=chat_format), shape="json or calls"
    )

    assert said(either(), spoken[text]) == Said(text, "", text)
    assert said(either(), spoken[call]) == Said("", "", "", calls=(ADDED,))


# ── log probabilities ──


def of(token: str) -> Logprob:
    return Logprob(token, -1.0)


def test_log_probabilities_come_with_the_text_that_shows_their_token() -> None:
    """Of the answer only: neither the thinking nor markers nor a stop text have any."""
    parser = thinking_model(stop=("STOP",))
    tokens = [
        "<think>",
        "Hm.",
        "</think>",
        "\n\n",
        "Hi",
        "</th",
        "ink>",
        " ",
        "S",
        "",
        "T!",
        "</think>.",
        "ST",
        "OP",
    ]

    chunks = [chunk for token in tokens for chunk in parser.receive(token, of(token))]

    assert [*chunks, *parser.end()] == [
        ReasoningChunk("Hm."),
        TextChunk("Hi", (of("Hi"),)),
        TextChunk(" ST!", (of(" "), of("S"), of(""), of("T!"))),
        TextChunk(".", (of("</think>."),)),
    ]


# ── laws ──

pieces = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        ADD,
        "{",
        "STOP",
        "TO",
        "OPS",
        "<",
        "t",
        "\n",
        " ",
        "Hi",
    ]
)
texts = st.lists(pieces, max_size=12).map("".join)
makers = st.sampled_from(
    [
        tool_user,
        thinking_model,
        partial(OutputParser, UNMARKED, stop=("STOP",)),
        partial(tool_user, stop=("STOP", "OPST")),
        partial(tool_user, stop=("STOP", "TO", "<tool")),
        partial(tool_user, begins_with=THINKING),
        partial(thinking_model, begins_with=THINKING, shape="json", stop=("TO",)),
        partial(tool_user, shape="calls"),
    ]
)


@settings(max_examples=300)
@given(makers, texts, st.data())
def test_where_the_text_is_cut_does_not_matter(
    make: "partial[OutputParser]", text: str, data: st.DataObject
) -> None:
    edges = [0, *sorted(data.draw(st.sets(st.integers(0, len(text))))), len(text)]

    whole = said(make(), [text])
    assert said(make(), (text[a:b] for a, b in pairwise(edges))) == whole
    assert said(make(), text) == whole


@given(makers, texts)
def test_what_was_shown_begins_what_it_came_to(make: "partial[OutputParser]", text: str) -> None:
    """So that the end's text can be told by what is missing of it."""
    told = said(make(), text)

    assert told.text.startswith(told.shown)
    assert told.shown_thought == (told.thought or "")

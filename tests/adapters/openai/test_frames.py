"""Frames are a pure function of events: the same live, merged, and read from a log."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given

from adapters.openai.frames import DONE, Framer, frames
from domain.events import ResponseEvent, merged
from domain.ports import End, EngineCall, EngineChunk, FinishReason, ReasoningChunk, TextChunk
from tests.adapters.openai.wire import check_response, read_stream
from tests.domain.engine_scripts import play, stories
from tests.domain.stories import PERSISTED

GOLDEN = Path("tests/golden")
CALL = EngineCall(name="add", arguments='{"a":1}', id="call_a")


def ended(text: str, *calls: EngineCall, finish_reason: FinishReason = "stop") -> End:
    """An engine's end."""
    return End(finish_reason=finish_reason, text=text, tool_calls=calls, prompt_tokens=3, output_tokens=2)


SHAPES: dict[str, tuple[Sequence[EngineChunk], End | None]] = {
    #
    "text": ([TextChunk("Hel"), TextChunk("lo")], ended("Hello")),
    # R-293, D-04
    "reasoning_then_text": ([ReasoningChunk("hm"), TextChunk("Hi")], ended("Hi")),
    # D-20
    "nothing": ([], ended("")),
    # R-295, D-33
    "call": ([TextChunk("<tool_call>x")], ended("", CALL, finish_reason="tool_calls")),
    # R-306, D-02
    "length": ([TextChunk("Hel")], ended("Hel", finish_reason="length")),
    # R-303, D-05
    "failure_with_text_open": ([TextChunk("Hel")], None),
    #
    "failure_with_nothing_open": ([], None),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_turn_is_told_in_the_recorded_bytes(shape: str) -> None:
    """R-259 … R-264, D-01: a golden file changes only with a new wire version."""
    told = b"".join(frames(play(*SHAPES[shape])))

    assert told.decode() == (GOLDEN / f"{shape}.sse").read_text(encoding="utf-8")


@given(stories)
def test_every_stream_is_well_formed_and_its_terminal_holds_what_was_told(story: list[ResponseEvent]) -> None:
    """R-262, R-291, D-01, D-03, field reports C1, C5, C7, C19, C20, C21."""
    events = read_stream(b"".join(frames(story)))

    created, terminal = events[0]["response"], check_response(events[-1]["response"])
    check_response(created)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert (created["id"], created["output"]) == (terminal["id"], [])
    done = {event["item"]["id"] for event in events if event["type"] == "response.output_item.done"}
    listed = {item["id"] for item in terminal["output"]}
    assert listed <= done or terminal["status"] == "failed"


@given(stories)
def test_merging_the_events_changes_no_byte(story: list[ResponseEvent]) -> None:
    assert frames(merged(story)) == frames(story)


@given(stories)
def test_what_happens_after_the_end_adds_nothing(story: list[ResponseEvent]) -> None:
    assert frames([*story, PERSISTED]) == frames(story)


@given(stories)
def test_only_the_last_frame_closes_the_stream(story: list[ResponseEvent]) -> None:
    framer = Framer()
    told = [frame for event in story for frame in framer.receive(event)]

    assert framer.closed
    assert [frame.endswith(DONE) for frame in told] == [False] * (len(told) - 1) + [True]

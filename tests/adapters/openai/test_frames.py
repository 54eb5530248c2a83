"""Frames are a pure function of events: the same live, merged, and read from a log."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.adapters.openai.wire import check_response, read_stream
from tests.domain.engine_scripts import play, stories
from tests.domain.stories import CREATED, DELETED, NOON_MS, PERSISTED, REQUEUED, STARTED
from turnlog.adapters.openai.frames import DONE, PIECE_BYTES, Framer, framed, frames, heartbeat, pieces
from turnlog.domain.events import (
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    Limit,
    ResponseCreated,
    ResponseEvent,
    TurnFailed,
    merged,
)
from turnlog.domain.items import MessageItem
from turnlog.domain.ports import (
    End,
    EngineCall,
    EngineChunk,
    FinishReason,
    Frame,
    ReasoningChunk,
    SharedFrame,
    TextChunk,
)
from turnlog.domain.response import fold

GOLDEN = Path("tests/golden")
GOLDEN_2 = GOLDEN / "wire_version_2"
CALL = EngineCall(name="add", arguments='{"a":1}', id="call_a")
OTHER = EngineCall(name="add", arguments='{"a":2}', id="call_b")
PATCH = EngineCall(name="patch", arguments='{"input":"*** x"}', id="call_c")


def ended(text: str, *calls: EngineCall, finish_reason: FinishReason = "stop") -> End:
    """An engine's end."""
    return End(finish_reason=finish_reason, text=text, tool_calls=calls, prompt_tokens=3, output_tokens=2)


TAG = TextChunk("<tool_call>")
HM = ReasoningChunk("hm")

# Each sequence of R-292 … R-306, as the differences change it.
SHAPES: dict[str, tuple[Sequence[EngineChunk], End | None]] = {
    "R-292 text": ([TextChunk("Hel"), TextChunk("lo")], ended("Hello")),
    "R-293 reasoning then text": ([HM, TextChunk("Hi")], ended("Hi")),
    "R-294 reasoning only": ([HM], ended("")),
    "R-295 call": ([TAG], ended("", CALL, finish_reason="tool_calls")),
    "R-295 two calls": ([TAG], ended("", CALL, OTHER, finish_reason="tool_calls")),
    "R-295 custom call": ([TAG], ended("", PATCH, finish_reason="tool_calls")),
    "R-296 text then call": ([TextChunk("Sure. "), TAG], ended("Sure.", CALL)),
    "R-297 white space then call": ([TextChunk("\n"), TAG], ended("", CALL)),
    "R-298 tag without call": ([TextChunk("So: "), TAG, TextChunk("bad")], ended("So: <tool_call>bad")),
    "R-299 partial tag": ([TextChunk("5 <"), TextChunk(" 10 <")], ended("5 < 10 <")),
    "R-300 all in the end": ([], ended("Hello")),
    "R-301 final longer": ([TextChunk("Hel")], ended("Hello")),
    "R-302 final shorter": ([TextChunk("Hello  ")], ended("Hello")),
    "R-303 failure with text": ([TextChunk("Hel")], None),
    "R-304 failure with reasoning": ([HM], None),
    "R-304 failure with nothing": ([], None),
    "R-305 failure after the end": ([TextChunk("Hi")], ended("Hi", CALL, finish_reason="error")),
    "R-306 length": ([TextChunk("Hel")], ended("Hel", finish_reason="length")),
    "D-20 nothing": ([], ended("")),
    "D-21 late reasoning": ([HM, TextChunk("Hi"), HM], ended("Hi")),
}


def streamed(story: Sequence[ResponseEvent]) -> list[bytes]:
    """The frames of a whole story."""
    return frames(story, fold(story))


def golden(shape: str) -> Path:
    """The file with the recorded bytes of a shape."""
    return GOLDEN / f"{shape.replace(' ', '_')}.sse"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_turn_is_told_in_the_recorded_bytes(shape: str) -> None:
    """R-259, R-260, R-263, R-264, D-01, D-04, D-05: golden files change only with a new wire version."""
    told = b"".join(streamed(play(*SHAPES[shape])))

    assert told.decode() == golden(shape).read_text(encoding="utf-8")
    read_stream(told)


LINE_ENDS = [TextChunk("a\u2028b\u2029"), TextChunk("c\x85d"), TextChunk("\u2027\u2030Å")]

# What the second wire version changed.
SHAPES_2: dict[str, tuple[Sequence[EngineChunk], End | None, Limit]] = {
    "T2-06 output limit": ([TextChunk("Hel")], ended("Hel", finish_reason="length"), "max_output_tokens"),
    "T2-06 window limit": ([TextChunk("Hel")], ended("Hel", finish_reason="length"), "context_window"),
    "T2-06 failure": ([TextChunk("Hel")], None, "context_window"),
    "T2-23 line ends": (LINE_ENDS, ended("a\u2028b\u2029c\x85d\u2027\u2030Å"), "max_output_tokens"),
}


def second_version(story: Sequence[ResponseEvent], limit: Limit = "max_output_tokens") -> list[ResponseEvent]:
    """The story as a turn that was made under the second wire version."""
    changed: list[ResponseEvent] = []
    for event in story:
        match event:
            case ResponseCreated():
                changed.append(replace(event, wire_version=2))
            case GenerationStarted():
                changed.append(replace(event, output_limit=limit))
            case _:
                changed.append(event)
    return changed


@pytest.mark.parametrize("shape", SHAPES_2)
def test_a_shape_of_the_second_wire_version_is_told_in_the_recorded_bytes(shape: str) -> None:
    """T2-06, T2-23: the first version knows neither the limit nor the escapes."""
    spoken, end, limit = SHAPES_2[shape]
    told = b"".join(streamed(second_version(play(spoken, end), limit)))

    assert told.decode() == (GOLDEN_2 / f"{shape.replace(' ', '_')}.sse").read_text(encoding="utf-8")
    read_stream(told)


OPENED = ItemOpened(at_ms=NOON_MS + 20, output_index=0, item=MessageItem("msg_1", "in_progress", ""))
SAID = ItemExtended(at_ms=NOON_MS + 20, item_id="msg_1", deltas=("Hel",))
CUT_SHORT = ItemClosed(at_ms=NOON_MS + 30, output_index=0, item=MessageItem("msg_1", "incomplete", "Hel"))
CANCELLED = TurnFailed(at_ms=NOON_MS + 30, reason="cancelled", message="the turn was cancelled")
IN_BACKGROUND = replace(CREATED, wire_version=2, background=True)

CANCELS: dict[str, list[ResponseEvent]] = {
    "D-02 cancelled": [replace(CREATED, wire_version=2), STARTED, OPENED, SAID, CUT_SHORT, CANCELLED],
    "D-26 cancelled in the background": [
        IN_BACKGROUND,
        REQUEUED,
        STARTED,
        OPENED,
        SAID,
        CUT_SHORT,
        CANCELLED,
    ],
    "D-26 cancelled in the queue": [IN_BACKGROUND, CANCELLED],
}


@pytest.mark.parametrize("shape", CANCELS)
def test_a_cancelled_turn_is_told_in_the_recorded_bytes(shape: str) -> None:
    """D-02, D-26: one frame, no `error`; what is deleted later tells nothing more."""
    told = b"".join(streamed([*CANCELS[shape], DELETED]))

    assert told.decode() == (GOLDEN_2 / f"{shape.replace(' ', '_')}.sse").read_text(encoding="utf-8")
    last = read_stream(told)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")


def test_in_the_first_wire_version_a_cancelled_turn_had_failed() -> None:
    """D-02: recorded histories keep their bytes."""
    told = read_stream(b"".join(streamed([CREATED, STARTED, CANCELLED])))

    assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
    assert told[-1]["response"]["incomplete_details"] == {"reason": "cancelled"}


def test_a_sign_of_life_repeats_the_last_frame_about_the_status() -> None:
    """D-40, D5: under the number of the last frame sent."""
    live, queued = streamed([CREATED, STARTED, OPENED]), streamed([IN_BACKGROUND])
    running = streamed([IN_BACKGROUND, STARTED, OPENED])

    assert heartbeat(live[:3], 2) == live[1].replace(b'"sequence_number":1', b'"sequence_number":2')
    assert heartbeat(queued, 1) == queued[1]
    assert heartbeat(running[:3], 4) == running[2].replace(b'"sequence_number":2', b'"sequence_number":4')


@given(stories)
def test_no_client_splits_a_frame_of_the_second_wire_version(story: list[ResponseEvent]) -> None:
    """T2-23: whatever it takes for the end of a line, and the first version's fields are all there."""
    told, told_before = (b"".join(streamed(each)) for each in (second_version(story), story))

    assert told.decode().splitlines() == told.decode().split("\n")[:-1]
    for frame, before in zip(read_stream(told), read_stream(told_before), strict=True):
        (frame.get("response", {}).get("incomplete_details") or {}).pop("limit", None)
        assert frame == before


@given(stories)
def test_every_stream_is_well_formed_and_its_terminal_holds_what_was_told(story: list[ResponseEvent]) -> None:
    """R-262, R-291, D-01, D-03, C1, C5, C7, C19, C20, C21."""
    events = read_stream(b"".join(streamed(story)))

    created, terminal = events[0]["response"], check_response(events[-1]["response"])
    check_response(created)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert (created["id"], created["output"]) == (terminal["id"], [])
    done = {event["item"]["id"] for event in events if event["type"] == "response.output_item.done"}
    listed = {item["id"] for item in terminal["output"]}
    assert listed <= done or terminal["status"] == "failed"


@given(stories)
def test_merging_the_events_changes_no_byte(story: list[ResponseEvent]) -> None:
    assert streamed(merged(story)) == streamed(story)


@given(stories)
def test_what_happens_after_the_end_adds_nothing(story: list[ResponseEvent]) -> None:
    assert streamed([*story, PERSISTED]) == streamed(story)


@given(stories)
def test_only_the_last_frame_closes_the_stream(story: list[ResponseEvent]) -> None:
    framer = Framer()
    response = fold(story)
    told = [frame for event in story for frame in framer.receive(event, response)]

    assert framer.closed
    assert [bytes(frame).endswith(DONE) for frame in told] == [False] * (len(told) - 1) + [True]


@given(stories)
def test_what_a_request_brought_is_in_memory_once_however_many_frames_repeat_it(
    story: list[ResponseEvent],
) -> None:
    """T2-20: the bytes are those of one piece."""
    assert isinstance(story[0], ResponseCreated)
    echoing = [replace(story[0], instructions="x" * 100_000), *story[1:]]
    response = fold(echoing)
    told = framed(echoing, response)

    long = [frame for frame in told if isinstance(frame, SharedFrame)]
    read = read_stream(b"".join(map(bytes, told)))

    assert len(long) >= 3
    assert len({id(frame.shared) for frame in long}) == 1
    assert max(len(frame.head) + len(frame.tail) for frame in long) < 10_000
    assert {each["response"]["instructions"] for each in read if "response" in each} == {"x" * 100_000}
    assert bytes(heartbeat(told[:2], 1)) == bytes(told[1])


@given(st.lists(st.binary(max_size=3 * PIECE_BYTES) | st.builds(SharedFrame, *[st.binary()] * 3)))
def test_pieces_are_the_frames_and_none_is_long(told: list[Frame]) -> None:
    cut = list(pieces(told))

    assert b"".join(cut) == b"".join(map(bytes, told))
    assert max(map(len, cut), default=0) <= PIECE_BYTES

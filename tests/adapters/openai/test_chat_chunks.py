"""Chunks are a pure function of events, and add up to the completion."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.adapters.openai.chat_wire import assembled, check_completion, read_chunks
from tests.adapters.openai.test_frames import CALL, HM, OTHER, TAG, ended
from tests.domain.engine_scripts import play, stories
from tests.domain.stories import CREATED, FAILED, PERSISTED, STARTED
from turnlog.adapters.openai.chat.chunks import ChunkFramer, chunk_frames, without_usage
from turnlog.adapters.openai.chat.completion import completion_object
from turnlog.adapters.openai.frames import DONE
from turnlog.domain.events import ItemExtended, ItemOpened, ResponseEvent, Sampling, TurnFailed, merged
from turnlog.domain.items import Logprob, MessageItem, ReasoningItem
from turnlog.domain.ports import TextChunk
from turnlog.domain.response import fold

Json = dict[str, Any]


def streamed(story: Sequence[ResponseEvent]) -> list[bytes]:
    """The frames of a whole story."""
    return chunk_frames(story, fold(story))


def told(story: Sequence[ResponseEvent]) -> list[Json]:
    """The chunks of a whole story."""
    return read_chunks(b"".join(streamed(story)))


def deltas(story: Sequence[ResponseEvent]) -> list[Json]:
    """What each chunk adds."""
    return [choice["delta"] for chunk in told(story) for choice in chunk["choices"]]


def test_an_answer_is_told_piece_by_piece() -> None:
    story = play([HM, TextChunk("Hel"), TextChunk("lo")], ended("Hello"))

    assert deltas(story) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert told(story)[-2]["choices"][0]["finish_reason"] == "stop"


def test_calls_are_told_by_their_index() -> None:
    story = play([TAG], ended("", CALL, OTHER, finish_reason="tool_calls"))

    assert deltas(story)[1:-1] == [
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "add", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]},
        {
            "tool_calls": [
                {
                    "index": 1,
                    "id": "call_b",
                    "type": "function",
                    "function": {"name": "add", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"a":2}'}}]},
    ]
    assert told(story)[-2]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ended("Hel"), "stop"),
        (ended("Hel", finish_reason="length"), "length"),
        (ended("Hel", CALL, finish_reason="tool_calls"), "tool_calls"),
        (ended("Hel", CALL, finish_reason="length"), "length"),
    ],
    ids=["stop", "length", "tool_calls", "calls that were cut"],
)
def test_the_finish_reason_is_that_of_the_turn(end: Any, reason: str) -> None:
    story = play([TextChunk("Hel")], end)

    assert completion_object(fold(story))["choices"][0]["finish_reason"] == reason
    assert told(story)[-2]["choices"][0]["finish_reason"] == reason


def test_a_failure_is_an_error_and_then_the_end() -> None:
    """D-05: clients raise what has the key `error`."""
    error = {"type": "server_error", "message": FAILED.message, "code": "server_error", "param": None}

    assert told([CREATED, STARTED, FAILED])[-1] == {"error": error}
    assert streamed([CREATED, STARTED, FAILED])[-1] == DONE


def test_log_probabilities_come_with_their_pieces() -> None:
    asked = replace(CREATED, sampling=Sampling(1.0, 1.0, 7, top_logprobs=1))
    pieces = [TextChunk(text, (Logprob(text, -0.5, ((text, -0.5),)),)) for text in ("Hel", "lo")]
    _, *story = play(pieces, ended("Hello"))

    completion = check_completion(completion_object(fold([asked, *story])))

    whole = completion["choices"][0]["logprobs"]["content"]
    assert [each["token"] for each in whole] == ["Hel", "lo"]
    assert assembled(told([asked, *story]))["logprobs"] == whole


@given(stories)
def test_the_chunks_add_up_to_the_completion(story: list[ResponseEvent]) -> None:
    """Except for what the engine took back in the end (R-286, R-302): what was sent stays sent."""
    response = fold(story)
    if isinstance(response.ended, TurnFailed):
        assert "error" in told(story)[-1]
        return
    completion, added_up = check_completion(completion_object(response)), assembled(told(story))

    (choice,), (other,) = completion.pop("choices"), added_up.pop("choices")
    message, sent = choice["message"], other["message"]
    for name, kind in (("content", MessageItem), ("reasoning_content", ReasoningItem)):
        assert (sent.get(name) or "") == streamed_text(story, kind)
        if streamed_text(story, kind) != "".join(i.text for i in response.items if isinstance(i, kind)):
            message.pop(name, None)
            sent.pop(name, None)
    assert choice.pop("logprobs") is None
    assert other == choice
    assert added_up.pop("logprobs") == []
    assert completion.items() >= added_up.items()


def streamed_text(story: Sequence[ResponseEvent], kind: type[MessageItem | ReasoningItem]) -> str:
    """What was streamed into items of this kind."""
    opened = {event.item.id for event in story if isinstance(event, ItemOpened) and type(event.item) is kind}
    pieces = (event for event in story if isinstance(event, ItemExtended) and event.item_id in opened)
    return "".join(delta for event in pieces for delta in event.deltas)


@given(stories)
def test_a_stream_has_the_same_bytes_live_and_from_the_log(story: list[ResponseEvent]) -> None:
    framer, response = ChunkFramer(), fold(story[:1])
    live = framer.receive(story[0], response)
    for event in story[1:]:
        response.apply(event)
        live += framer.receive(event, response)

    assert live == streamed(story)


@given(stories)
def test_merging_the_events_changes_no_byte(story: list[ResponseEvent]) -> None:
    assert streamed(merged(story)) == streamed(story)


@given(stories)
def test_only_the_last_frame_closes_the_stream(story: list[ResponseEvent]) -> None:
    framer, response = ChunkFramer(), fold(story)
    frames = [frame for event in [*story, PERSISTED] for frame in framer.receive(event, response)]

    assert framer.closed
    assert [frame.endswith(DONE) for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert [without_usage(frame) for frame in frames] == [*frames[:-1], DONE]

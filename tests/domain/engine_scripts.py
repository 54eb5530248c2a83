"""Engine outputs as hypothesis draws them, and a turn played from them without a server."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.domain.stories import CREATED, FAILED, NOON_MS, start
from turnlog.domain.events import ResponseEvent, TurnCommitted, TurnFailed
from turnlog.domain.ports import End, EngineCall, EngineChunk, ReasoningChunk, TextChunk
from turnlog.domain.response import Response
from turnlog.domain.usage import Timing

TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "name": "add"},
    {"type": "custom", "name": "patch"},
)
"""A function `add` and a custom tool `patch`."""

words = st.sampled_from(["Hel", "lo", " ", "\n\n", "5 <", "<tool_call>", "</think>", "“é🙂", "\u2028"])
texts = st.lists(words, max_size=4).map("".join)
chunks = st.lists(st.builds(TextChunk, words) | st.builds(ReasoningChunk, words), max_size=8)
calls = st.lists(
    st.builds(
        EngineCall,
        name=st.sampled_from(["add", "patch", "unknown"]),
        arguments=st.sampled_from(['{"a":1}', '{"input":"x"}', ""]),
        id=st.none() | st.just("call_a"),
        status=st.sampled_from(["ok", "invalid_json"]),
    ),
    max_size=2,
).map(tuple)
ends = st.builds(
    End,
    finish_reason=st.sampled_from(["stop", "length", "tool_calls", "error"]),
    text=texts,
    thinking=st.none() | texts,
    tool_calls=calls,
    prompt_tokens=st.just(3),
    output_tokens=st.integers(0, 9),
    cached_tokens=st.none() | st.integers(0, 3),
    output_ids=st.none() | st.just((1, 2)),
    unbatched=st.none() | st.booleans(),
)


def play(
    spoken: Sequence[EngineChunk], end: End | None, tools: Sequence[dict[str, Any]] = TOOLS
) -> list[ResponseEvent]:
    """The events of a turn whose engine says this; without an `end` it fails."""
    response = Response(replace(CREATED, tools=tuple(tools)))
    # The golden files know neither tools nor the waits of these stories.
    story: list[ResponseEvent] = [CREATED, *start(response)]
    for chunk in spoken:
        story += response.receive(chunk, at_ms=NOON_MS)
    if end:
        *closings, last = response.finish(end, at_ms=NOON_MS)
        assert isinstance(last, TurnCommitted | TurnFailed)
        story += [*closings, replace(last, timing=Timing(queue_ms=1.0))]
    else:
        story += response.fail(FAILED.reason, FAILED.message, at_ms=FAILED.at_ms)
    return story


stories = st.builds(play, chunks, st.none() | ends)
"""Whole stories of a turn, as the engine's chunks make them."""

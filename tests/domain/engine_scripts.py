"""Engine outputs as hypothesis draws them, and a turn played from them without a server."""

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.domain.stories import CREATED, FAILED, NOON_MS, STARTED, NumberedIds
from turnlog.domain.events import ResponseEvent
from turnlog.domain.ports import End, EngineCall, EngineChunk, ReasoningChunk, TextChunk
from turnlog.domain.response import Response
from turnlog.domain.tools import Toolbox, ToolChoice
from turnlog.domain.turn import TurnAssembler, epilogue
from turnlog.domain.usage import Timing

TOOLBOX = Toolbox([{"type": "function", "name": "add"}, {"type": "custom", "name": "patch"}], ToolChoice())
"""A toolbox with a function `add` and a custom tool `patch`."""

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
    alone=st.none() | st.booleans(),
)


def play(spoken: Sequence[EngineChunk], end: End | None) -> list[ResponseEvent]:
    """The events of a turn whose engine says this; without an `end` it fails."""
    response = Response(CREATED)
    story: list[ResponseEvent] = [CREATED]
    assembler = TurnAssembler(NumberedIds().new_id, TOOLBOX)

    def take(events: Sequence[ResponseEvent]) -> None:
        for event in events:
            response.apply(event)
        story.extend(events)

    take([STARTED])
    for chunk in spoken:
        take(assembler.receive(chunk, NOON_MS))
    if end:
        take(assembler.finish(end, Timing(queue_ms=1.0), NOON_MS))
    else:
        take(epilogue(response, FAILED))
    return story


stories = st.builds(play, chunks, st.none() | ends)
"""Whole stories of a turn, as the engine's chunks make them."""

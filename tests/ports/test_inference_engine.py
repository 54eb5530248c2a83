"""One suite for every adapter of the engine port: what the app may rely on, whichever engine it is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.app.scripts import write_script
from tests.fakes.engine import Outputs
from tests.tiny_model import make_tiny_model
from tests.waiting import SOON_S
from turnlog.adapters.engine_process.source import ProcessSource
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.ports import (
    CallConstraint,
    Cancelled,
    End,
    EngineOutput,
    InferenceEngine,
    JsonConstraint,
    Submission,
    TextChunk,
)
from turnlog.domain.tools import Json, Tool

HELLO = [Message("user", "hello there")]
MORE = [*HELLO, Message("assistant", "yes"), Message("user", "and more")]
GREEDY = Sampling(temperature=0.0, top_p=1.0, seed=1)


def scripted(folder: Path) -> InferenceEngine:
    """An engine that plays."""
    return ScriptedEngine.load(write_script(folder))


def mlx(folder: Path) -> InferenceEngine:
    """An engine that computes."""
    return MlxEngine.load(make_tiny_model(folder))


def process(folder: Path) -> InferenceEngine:
    """The same in a process of its own."""
    return ProcessSource(make_tiny_model(folder)).load()


@pytest.fixture(scope="module", params=[scripted, mlx, process], ids=["scripted", "mlx", "process"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InferenceEngine]:
    """Each adapter in turn."""
    make: Callable[[Path], InferenceEngine] = request.param
    engine = make(tmp_path_factory.mktemp("engine"))
    yield engine
    engine.close()


def nested(levels: int) -> Json:
    """A schema of so many levels."""
    return {"items": nested(levels - 1)} if levels > 1 else {}


DEEP = nested(33)


def submission(
    engine: InferenceEngine, messages: list[Message], turn_id: str = "turn", budget: int = 8
) -> Submission:
    """A greedy turn."""
    return Submission(
        turn_id=turn_id, prompt=engine.render(messages), sampling=GREEDY, output_budget_tokens=budget
    )


def run(engine: InferenceEngine, asked: Submission) -> list[EngineOutput]:
    """All outputs of a turn."""
    outputs = Outputs()
    engine.submit(asked, outputs.deliver)
    return outputs.all()


def test_a_turn_is_chunks_that_are_never_empty_and_then_one_end(engine: InferenceEngine) -> None:
    *chunks, end = run(engine, submission(engine, HELLO))

    assert isinstance(end, End)
    assert all(isinstance(chunk, TextChunk) and chunk.text for chunk in chunks)
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == end.text
    assert end.prompt_tokens == len(engine.render(HELLO).ids)
    assert end.output_tokens > 0
    assert end.unbatched is True
    assert end.cache is not None
    engine.drop(end.cache)


def test_the_same_conversation_renders_to_the_same_ids_and_a_longer_one_to_more(
    engine: InferenceEngine,
) -> None:
    assert engine.render(HELLO) == engine.render(HELLO)
    assert len(engine.render(MORE).ids) > len(engine.render(HELLO).ids)


def test_a_handle_spares_what_its_prompt_shares_and_changes_no_answer(engine: InferenceEngine) -> None:
    *_, first = run(engine, submission(engine, HELLO))
    assert isinstance(first, End)
    assert first.cache
    cold = submission(engine, MORE)
    shared = engine.common_prefix(first.cache, cold.prompt)
    *_, without = run(engine, cold)
    warm = Submission(
        turn_id="warm", prompt=cold.prompt, sampling=GREEDY, output_budget_tokens=8, warm=first.cache
    )
    *_, spared = run(engine, warm)

    assert 0 < shared < len(cold.prompt.ids)
    assert engine.size_bytes(first.cache) > 0
    assert isinstance(without, End)
    assert isinstance(spared, End)
    assert (spared.cached_tokens, without.cached_tokens) == (shared, 0)
    assert spared.text == without.text
    for end in (first, without, spared):
        assert end.cache
        engine.drop(end.cache)


def test_a_cancelled_turn_ends_as_cancelled(engine: InferenceEngine) -> None:
    """R-220."""
    outputs = Outputs()
    engine.submit(submission(engine, [Message("user", "hang")], budget=400), outputs.deliver)
    outputs.next()

    engine.cancel("turn")

    final = outputs.all()[-1]
    assert isinstance(final, Cancelled)
    if final.cache:
        engine.drop(final.cache)


def test_cancelling_a_turn_that_is_not_there_is_nothing(engine: InferenceEngine) -> None:
    engine.cancel("nobody")

    *_, end = run(engine, submission(engine, HELLO))
    assert isinstance(end, End)


def test_turns_run_beside_each_other_and_say_the_same_as_alone(engine: InferenceEngine) -> None:
    *_, alone = run(engine, submission(engine, HELLO))
    pair = [Outputs(), Outputs()]
    for number, outputs in enumerate(pair):
        engine.submit(submission(engine, HELLO, f"turn {number}"), outputs.deliver)

    ends = [outputs.all()[-1] for outputs in pair]

    assert isinstance(alone, End)
    assert [end.text for end in ends if isinstance(end, End)] == [alone.text] * 2


def test_tools_lengthen_the_prompt_and_their_names_matter(engine: InferenceEngine) -> None:
    look, find = (Tool(name, "function", name) for name in ("look", "find"))
    plain = engine.render(HELLO)

    with_look, with_find = (engine.render(HELLO, tools=[tool]) for tool in (look, find))

    assert len(with_look.ids) > len(plain.ids)
    assert with_look == engine.render(HELLO, tools=[look])
    assert with_look != with_find


def test_a_whole_tool_loop_is_rendered(engine: InferenceEngine) -> None:
    """R-166, R-167, R-168: calls and outputs are part of what the model reads."""
    look = Tool("look", "function", "look")
    called = Message("assistant", "", reasoning="hm", tool_calls=(ToolCall("call_1", "look", "{}"),))
    output = Message("tool", "nothing there", call_id="call_1")
    failed = Message("tool", "nothing there", call_id="call_1", is_error=True)

    asked, answered, refused = (
        engine.render(messages, tools=[look], effort="none")
        for messages in (HELLO, [*HELLO, called, output], [*HELLO, called, failed])
    )

    assert len(asked.ids) < len(answered.ids) < len(refused.ids)


def test_a_guide_is_compiled_once_and_used_by_several_turns(engine: InferenceEngine) -> None:
    constraint = engine.compile(JsonConstraint({"const": 7}))
    ends = [run(engine, replace(submission(engine, HELLO), constraint=constraint))[-1] for _ in range(2)]

    assert all(isinstance(end, End) and end.finish_reason == "stop" for end in ends)


@pytest.mark.parametrize(
    ("constraint", "complaint"),
    [
        (JsonConstraint({"items": {"enum": list(range(501))}}), "more than 500 values"),
        (
            CallConstraint((Tool("look", "function", "look", parameters=DEEP),), many=True),
            "deeper than 32 levels",
        ),
    ],
)
def test_a_guide_beyond_the_limits_is_refused(
    engine: InferenceEngine, constraint: JsonConstraint | CallConstraint, complaint: str
) -> None:
    with pytest.raises(InvalidRequestError, match=complaint):
        engine.compile(constraint)


def test_an_engine_gives_a_sign_of_life_while_it_works(engine: InferenceEngine) -> None:
    outputs = Outputs()
    engine.submit(submission(engine, [Message("user", "hang")], budget=400), outputs.deliver)
    outputs.next()

    engine.ping().result(SOON_S)

    engine.cancel("turn")
    final = outputs.all()[-1]
    assert isinstance(final, Cancelled)
    if final.cache:
        engine.drop(final.cache)


def test_an_engine_says_what_is_fixed_about_it(engine: InferenceEngine) -> None:
    info = engine.info

    assert len(info.model_fingerprint) == len(info.tokenizer_fingerprint) == 64
    assert info.concurrency > 1
    assert info.context_window_tokens


def test_releasing_memory_returns_at_once_and_harms_nothing(engine: InferenceEngine) -> None:
    *_, before = run(engine, submission(engine, HELLO))
    outputs = Outputs()
    engine.submit(submission(engine, [Message("user", "hang")], budget=400), outputs.deliver)
    outputs.next()

    engine.release_memory()

    engine.cancel("turn")
    cancelled = outputs.all()[-1]
    *_, after = run(engine, submission(engine, HELLO))
    assert isinstance(before, End)
    assert isinstance(cancelled, Cancelled)
    assert isinstance(after, End)
    assert after.text == before.text
    for final in (before, cancelled, after):
        if final.cache:
            engine.drop(final.cache)


def test_what_a_prompt_says_is_spelt_id_by_id(engine: InferenceEngine) -> None:
    ids = engine.render(HELLO).ids

    spelt = engine.decode_tokens(ids)

    assert len(spelt) == len(ids)
    assert spelt == tuple(engine.decode_tokens((id_,))[0] for id_ in ids)
    assert "" not in spelt

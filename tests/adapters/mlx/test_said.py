"""What a model says, through the engine: thinking, calls, stop texts and log probabilities."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.mlx.asking import GREEDY, HELLO, SEEDED, Turn, submission
from tests.adapters.mlx.forcing import Mouth, mouth
from tests.tiny_model import AGENT_TEMPLATE, OPENING_TEMPLATE
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import End, EngineCall, EngineChunk, ReasoningChunk, TextChunk
from turnlog.domain.tools import Tool

ADD = Tool("add", "function", "add", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
ASKED = [Message("user", "How much?")]


@pytest.fixture(scope="module", params=[AGENT_TEMPLATE, OPENING_TEMPLATE], ids=["closed", "opening"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mouth]:
    with mouth(tmp_path_factory.mktemp("model"), request.param) as found:
        yield found


def run(model: Mouth, text: str, *, budget: int = 200, thinking: bool = True, **sampling: Any) -> Turn:
    """A turn whose model says `text`, after its thinking has begun if it is one that thinks."""
    prompt = model.engine.render(ASKED, tools=[ADD], effort="high" if thinking else "none")
    if thinking and not model.opens(prompt):
        text = f"<think>\n{text}"
    said = model.says(text, **sampling)
    turn = Turn()
    model.engine.submit(
        submission(prompt, turn_id=text, sampling=said, budget=budget, tools=[ADD]), turn.deliver
    )
    return turn


def texts(chunks: list[EngineChunk], kind: type[EngineChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, kind))


def test_thinking_and_a_call_are_told_apart_beside_another_turn(model: Mouth) -> None:
    """F5, C15, C16, R-254: reasoning and calls as what they are, none of their markup in the text."""
    thought = "Let me add.\n</think>\n\n"
    calling = run(model, f"{thought}I add.\n{CALL}\n{CALL}<|im_end|>")
    telling = run(model, f"{thought}It is one.<|im_end|>")

    (chunks, end), (other_chunks, other) = calling.wait(), telling.wait()

    assert isinstance(end, End)
    assert isinstance(other, End)
    assert (texts(chunks, ReasoningChunk), texts(chunks, TextChunk)) == ("Let me add.", "I add.")
    assert (end.thinking, end.text, end.finish_reason) == ("Let me add.", "I add.", "tool_calls")
    assert end.tool_calls == (EngineCall("add", '{"a":1}'),) * 2
    assert (texts(other_chunks, TextChunk), other.text, other.finish_reason) == ("It is one.",) * 2 + (
        "stop",
    )
    opening = 0 if model.opens(model.engine.render(ASKED)) else model.tokens("<think>\n")
    assert end.reasoning_tokens == other.reasoning_tokens == opening + model.tokens("Let me add.\n</think>")
    assert not end.unbatched


def test_thinking_is_left_out_when_it_is_not_wanted(model: Mouth) -> None:
    end = run(model, "It is one.<|im_end|>", thinking=False).end()

    assert (end.text, end.thinking, end.reasoning_tokens) == ("It is one.", None, 0)


def test_a_budget_may_end_within_a_thought(model: Mouth) -> None:
    end = run(model, "Let me add one and one and one.", budget=20).end()

    assert (end.text, end.finish_reason) == ("", "length")
    assert end.thinking
    assert end.thinking.startswith("Let me add")
    assert end.reasoning_tokens == end.output_tokens == 20


@pytest.mark.parametrize("cut", ["<tool_call>\n{", CALL.replace('"add"', "add"), "<tool_call>" + "{" * 120])
def test_what_is_no_call_is_text_in_the_end(model: Mouth, cut: str) -> None:
    """C18: nothing that the model said is lost, whether it ended by itself or not."""
    end = run(model, f"I add. {cut}<|im_end|>", thinking=False).end()
    short = run(model, f"I add. {cut} and so on", thinking=False, budget=model.tokens(f"I add. {cut}")).end()

    assert (end.text, end.finish_reason) == (f"I add. {cut}", "stop")
    assert (short.text, short.finish_reason) == (f"I add. {cut}", "length")
    assert [call.status for call in (*end.tool_calls, *short.tool_calls)] == ["invalid_json"] * 2


def test_a_call_cut_off_before_its_marker_is_one_if_it_is_whole(model: Mouth) -> None:
    whole = CALL.removesuffix("\n</tool_call>")

    end = run(model, whole, thinking=False, budget=model.tokens(whole)).end()

    assert (end.tool_calls, end.text, end.finish_reason) == ((EngineCall("add", '{"a":1}'),), "", "length")


def test_a_hostile_call_ends_soon_as_text(model: Mouth) -> None:
    """Reliability, finding 10."""
    nested = "<tool_call>" + "{" * 400

    end = run(model, f"{nested}<|im_end|>", thinking=False, budget=450).end()

    assert end.text == nested


# ── stop texts ──


def test_a_stop_text_ends_the_turn_at_once(model: Mouth) -> None:
    turn = run(model, "STOP</think>One, twoSTOP three and more", stop=("STOP", "never"))

    chunks, end = turn.wait()

    assert isinstance(end, End)
    assert (texts(chunks, TextChunk), end.text, end.thinking) == ("One, two", "One, two", "STOP")
    assert end.finish_reason == "stop"
    assert end.output_ids is not None
    assert len(end.output_ids) < 30
    assert end.cache is not None
    longer = replace(model.engine.render(ASKED, tools=[ADD], effort="high"))
    longer = replace(longer, ids=(*longer.ids, *end.output_ids, 0, 0))
    assert model.engine.common_prefix(end.cache, longer) == len(longer.ids) - 2


def test_a_stopped_turn_leaves_its_neighbours_alone(model: Mouth) -> None:
    stopping = run(model, "</think>aSTOP", stop=("STOP",))
    going_on = run(model, "</think>One, twoSTOP three.<|im_end|>")

    assert stopping.end().text == "a"
    assert going_on.end().text == "One, twoSTOP three."


# ── log probabilities ──


def with_logprobs(top: int) -> Sampling:
    return replace(SEEDED, top_logprobs=top)


def test_each_token_of_an_answer_has_its_log_probability(engine: MlxEngine) -> None:
    turn = Turn()

    engine.submit(submission(engine.render(HELLO), sampling=with_logprobs(5), budget=40), turn.deliver)

    chunks, end = turn.wait()
    assert isinstance(end, End)
    found = list(chain.from_iterable(chunk.logprobs for chunk in chunks if isinstance(chunk, TextChunk)))
    assert 30 < len(found) <= end.output_tokens
    for each in found:
        values = [value for _, value in each.top]
        assert len(values) == 5
        assert values == sorted(values, reverse=True)
        assert each.logprob <= values[0] <= 0
        assert (each.token, each.logprob) in each.top or each.logprob <= values[-1]
    plain = [each.token for each in found if "\ufffd" not in each.token]
    assert all(token in end.text for token in plain)


def test_log_probabilities_come_without_alternatives_or_not_at_all(engine: MlxEngine) -> None:
    asked = submission(engine.render(HELLO), sampling=with_logprobs(0))
    with_them, without = Turn(), Turn()

    engine.submit(asked, with_them.deliver)
    chunks, end = with_them.wait()
    engine.submit(submission(asked.prompt, sampling=SEEDED), without.deliver)
    other_chunks, other = without.wait()

    assert all(isinstance(chunk, TextChunk) and chunk.logprobs for chunk in chunks)
    assert all(not each.top for chunk in chunks if isinstance(chunk, TextChunk) for each in chunk.logprobs)
    assert all(isinstance(chunk, TextChunk) and not chunk.logprobs for chunk in other_chunks)
    assert isinstance(end, End)
    assert isinstance(other, End)
    assert end.output_ids == other.output_ids


def test_the_probabilities_of_a_whole_vocabulary_add_up_to_one(engine: MlxEngine) -> None:
    turn = Turn()
    engine.submit(
        submission(engine.render(HELLO), sampling=replace(GREEDY, top_logprobs=10_000), budget=1),
        turn.deliver,
    )

    [chunk], _ = turn.wait()

    assert isinstance(chunk, TextChunk)
    [logprob] = chunk.logprobs
    assert sum(2.718281828**value for _, value in logprob.top) == pytest.approx(1, abs=1e-3)
    assert logprob.top[0] == (logprob.token, logprob.logprob)

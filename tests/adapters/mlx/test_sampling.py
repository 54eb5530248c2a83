"""How tokens are drawn: seeds, what is left out, and penalties for what was there before."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.mlx.asking import GREEDY, HELLO, SEEDED, Turn, answer, submission
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.runtime import mx
from turnlog.adapters.mlx.sampling import penalties, sampler
from turnlog.domain.events import Sampling
from turnlog.domain.tokens import TokenIds

LOGPROBS = mx.log(mx.array([[0.4, 0.3, 0.2, 0.1]]))


def drawn(**given: Any) -> set[int]:
    """All tokens that come up in many draws."""
    draw = sampler(Sampling(**{"temperature": 1.0, "top_p": 1.0, "seed": 1, **given}))
    found: list[Any] = [draw(LOGPROBS).item() for _ in range(200)]
    return set(found)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_p": 0.5}, {0, 1}),
        ({"top_p": 0.0}, {0}),
        ({"top_k": 3}, {0, 1, 2}),
        ({"top_k": 1}, {0}),
        ({"top_k": 4}, {0, 1, 2, 3}),
        ({"top_k": 5000}, {0, 1, 2, 3}),
        ({"min_p": 0.6}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        ({"top_k": 3, "min_p": 0.6, "top_p": 0.95}, {0, 1}),
    ],
)
def test_unlikely_tokens_are_left_out(given: dict[str, float], found: set[int]) -> None:
    """R-173."""
    assert drawn(**given) == found


def test_all_greedy_turns_share_one_sampler() -> None:
    greedy = replace(GREEDY, top_k=3, min_p=0.5)

    assert sampler(GREEDY) is sampler(greedy)
    assert penalties(greedy, 3) == []


def penalised(tokens: TokenIds, prompt_tokens: int, **given: Any) -> list[float]:
    """The logits 2, -2, 2, -2 with the penalties of a turn."""
    logits = mx.array([[2.0, -2.0, 2.0, -2.0]])
    for process in penalties(replace(GREEDY, **given), prompt_tokens):
        logits = process(mx.array(tokens, dtype=mx.int32), logits)
    found: Any = logits[0].tolist()
    return list(found)


def test_a_repetition_penalty_looks_at_prompt_and_answer() -> None:
    assert penalised((0, 1, 0), 2, repetition_penalty=2.0) == [1.0, -4.0, 2.0, -2.0]


def test_presence_and_frequency_penalties_look_at_the_answer_only() -> None:
    tokens = (0, 1, 2, 2, 3)

    assert penalised(tokens, 2, presence_penalty=0.5) == [2.0, -2.0, 1.5, -2.5]
    assert penalised(tokens, 2, frequency_penalty=0.5) == [2.0, -2.0, 1.0, -2.5]
    assert penalised(tokens, 2, frequency_penalty=-0.5, presence_penalty=-1.0) == [2.0, -2.0, 4.0, -0.5]
    assert penalised((0, 1), 2, presence_penalty=0.5) == [2.0, -2.0, 2.0, -2.0]


PENALISED = [
    replace(GREEDY, presence_penalty=2.0, frequency_penalty=2.0),
    replace(GREEDY, repetition_penalty=1.5),
    replace(SEEDED, repetition_penalty=1.2, frequency_penalty=0.5, top_k=20, min_p=0.05),
]


@pytest.mark.parametrize("sampling", PENALISED)
def test_penalties_draw_the_same_alone_in_a_batch_and_on_a_warm_cache(
    engine: MlxEngine, sampling: Sampling
) -> None:
    """With a warm cache a penalty must still see the tokens that are not read again."""
    asked = submission(engine.render(HELLO), sampling=sampling, budget=30)
    alone = answer(engine, asked)
    joining = Turn()
    first = Turn(on_first_chunk=lambda: engine.submit(asked, joining.deliver))
    engine.submit(submission(asked.prompt, turn_id="first", sampling=SEEDED, budget=50), first.deliver)

    warm = answer(engine, submission(asked.prompt, sampling=sampling, budget=30, warm=alone.cache))

    assert alone.output_ids != answer(engine, submission(asked.prompt, budget=30)).output_ids
    assert joining.end().output_ids == warm.output_ids == alone.output_ids
    assert warm.cached_tokens == len(asked.prompt.ids) - 1
    first.end()


def test_a_strong_penalty_lets_no_token_come_twice(engine: MlxEngine) -> None:
    asked = submission(engine.render(HELLO), sampling=replace(GREEDY, presence_penalty=1000.0), budget=60)

    said = answer(engine, asked).output_ids

    assert said is not None
    assert len(set(said)) == len(said)


def test_penalties_keep_the_type_of_the_logits() -> None:
    logits = mx.zeros((1, 4), dtype=mx.bfloat16)

    for process in penalties(replace(GREEDY, repetition_penalty=2.0, presence_penalty=1.0), 0):
        logits = process(mx.array([1]), logits)

    assert logits.dtype == mx.bfloat16
    assert logits.tolist() == [[0.0, -1.0, 0.0, 0.0]]

"""Turns of a model that cannot be batched run one after the other, and each says what it says alone."""

from pathlib import Path
from typing import Any

import pytest
from mlx_lm.generate import generate_step
from msgspec.structs import replace

from tests.adapters.mlx.asking import GREEDY, HELLO, SEEDED, Turn, answer, submission
from tests.adapters.mlx.networks import Shape, watched
from tests.adapters.mlx.unbatched import CHUNK_TOKENS, make_tiny_afm7
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.runtime import mx
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import Cancelled, EngineFailed, Prompt

AT_TEMPERATURE_1 = Sampling(temperature=1.0, top_p=1.0, seed=7)

OTHER = (Message("user", "Count to ten, please, and then back again, as slowly as you can."),)


def test_such_a_model_has_the_exclusive_lane(llama4: MlxEngine, engine: MlxEngine, tmp_path: Path) -> None:
    """R-079. AFM's cache could be merged, but `mlx_lm` then counts padding as places."""
    afm = MlxEngine.load(make_tiny_afm7(tmp_path / "afm7"))
    said = answer(afm, submission(afm.render(HELLO)))
    afm.close()

    assert said.output_tokens == 12
    assert (llama4.info.concurrency, afm.info.concurrency) == (1, 1)
    assert engine.info.concurrency > 1


def test_an_answer_is_that_of_mlx_lm(llama4: MlxEngine, llama4_folder: Path) -> None:
    prompt = llama4.render(HELLO)
    network = load(llama4_folder).network

    steps = generate_step(
        mx.array(prompt.ids), network, mx.default_stream(mx.default_device()), max_tokens=40
    )
    expected: Any = tuple(token for token, _ in steps)
    end = answer(llama4, submission(prompt, budget=40))

    assert end.output_ids == expected
    assert (end.finish_reason, end.prompt_tokens) == ("length", len(prompt.ids))
    assert len(prompt.ids) > CHUNK_TOKENS


@pytest.mark.parametrize("sampling", [GREEDY, AT_TEMPERATURE_1, replace(SEEDED, repetition_penalty=1.3)])
def test_turns_that_come_together_run_in_order_and_say_what_they_say_alone(
    llama4: MlxEngine, sampling: Sampling
) -> None:
    """They ran alone, as far as their numbers go."""
    prompts = [llama4.render(messages) for messages in (HELLO, OTHER, HELLO[1:])]
    asked = [
        submission(prompt, turn_id=f"{number}", sampling=sampling, budget=20)
        for number, prompt in enumerate(prompts)
    ]
    alone = [answer(llama4, turn).output_ids for turn in asked]
    heard: list[int] = []

    def submit(number: int) -> None:
        def deliver(output: Any) -> None:
            heard.append(number)
            turns[number].deliver(output)

        llama4.submit(asked[number], deliver)

    def join() -> None:
        submit(1)
        submit(2)

    turns = [Turn(on_first_chunk=join), Turn(), Turn()]
    submit(0)
    ends = [turn.end() for turn in turns]

    assert [end.output_ids for end in ends] == alone
    assert [end.unbatched for end in ends] == [True, True, True]
    assert heard == sorted(heard)


def test_one_sequence_is_computed_at_a_time(llama4_folder: Path) -> None:
    shapes: list[Shape] = []
    engine = MlxEngine(watched(llama4_folder, shapes.append), concurrency=8)
    asked = [submission(engine.render(HELLO), turn_id=f"{number}") for number in range(3)]
    turns = [Turn() for _ in asked]

    for turn, wanted in zip(turns, asked, strict=True):
        engine.submit(wanted, turn.deliver)
    said = [turn.end().output_ids for turn in turns]
    engine.close()

    assert {sequences for sequences, _ in shapes} == {1}
    assert said == [said[0]] * 3


def test_the_next_turn_does_not_read_again_what_is_known(llama4: MlxEngine) -> None:
    prompt = llama4.render(HELLO)
    first = answer(llama4, submission(prompt, sampling=SEEDED, budget=40))
    assert first.output_ids is not None
    messages = [*HELLO, Message("assistant", first.text), Message("user", "And then?")]
    second = llama4.render(messages, recorded={2: first.output_ids})

    cold = answer(llama4, submission(second, sampling=AT_TEMPERATURE_1))
    warm = [answer(llama4, submission(second, sampling=AT_TEMPERATURE_1, warm=first.cache)) for _ in "12"]

    assert [end.cached_tokens for end in warm] == [len(prompt.ids) + first.output_tokens] * 2
    assert [end.output_ids for end in warm] == [cold.output_ids] * 2


# Read are 100 tokens and an answer of 12, so the cache has let go of what lies before token 79.
@pytest.mark.parametrize(
    ("shared", "cached"), [(10, 0), (63, 0), (64, 0), (79, 0), (90, 0), (95, 0), (96, 96), (97, 97), (99, 99)]
)
def test_a_cache_is_cut_only_where_it_has_the_whole_chunk(
    llama4: MlxEngine, shared: int, cached: int
) -> None:
    """At 90 it could be cut, but the beginning of that chunk is gone: the answer would be another."""
    ids = tuple((7 * place) % 200 for place in range(100))
    first = answer(llama4, submission(Prompt(ids)))
    other = Prompt((*ids[:shared], *(201 + place for place in range(20))))

    cold = answer(llama4, submission(other))
    warm = answer(llama4, submission(other, warm=first.cache))

    assert (cold.cached_tokens, warm.cached_tokens) == (0, cached)
    assert warm.output_ids == cold.output_ids


def test_a_cancelled_answer_gives_back_what_was_read(llama4: MlxEngine) -> None:
    prompt = llama4.render(HELLO)
    whole = answer(llama4, submission(prompt, budget=60)).output_ids
    assert whole is not None
    longer = Prompt((*prompt.ids, *whole))
    turn = Turn(on_first_chunk=lambda: llama4.cancel("turn"))

    llama4.submit(submission(prompt, budget=400), turn.deliver)
    _, final = turn.wait()
    assert isinstance(final, Cancelled)
    assert final.cache is not None
    warm = answer(llama4, submission(longer, warm=final.cache))

    assert warm.cached_tokens == llama4.common_prefix(final.cache, longer) > len(prompt.ids)
    assert warm.output_ids == answer(llama4, submission(longer)).output_ids


def test_a_turn_is_cancelled_while_it_waits(llama4: MlxEngine) -> None:
    prompt = llama4.render(HELLO)
    late, last = Turn(), Turn()

    def come_and_go() -> None:
        llama4.submit(submission(prompt, turn_id="late"), late.deliver)
        llama4.submit(submission(prompt, turn_id="last"), last.deliver)
        llama4.cancel("late")

    first = Turn(on_first_chunk=come_and_go)
    llama4.submit(submission(prompt, turn_id="first"), first.deliver)

    assert late.wait() == ([], Cancelled())
    assert first.end().output_ids == last.end().output_ids


def test_an_end_token_ends_the_answer(llama4: MlxEngine, llama4_folder: Path) -> None:
    prompt = llama4.render(HELLO)
    said = answer(llama4, submission(prompt)).output_ids
    assert said is not None
    stop_at = next(place for place, token in enumerate(said) if place > 2 and token not in said[:place])

    model = load(llama4_folder)
    model.tokenizer.eos_token_ids = {said[stop_at]}
    stopping = MlxEngine(model)
    end = answer(stopping, submission(prompt))
    stopping.close()

    assert (end.finish_reason, end.output_ids) == ("stop", said[: stop_at + 1])
    assert end.text == answer(llama4, submission(prompt, budget=stop_at)).text


def test_a_turn_that_cannot_be_run_fails_by_itself(llama4: MlxEngine) -> None:
    turn = Turn()

    llama4.submit(submission(llama4.render(HELLO), budget=0), turn.deliver)

    assert turn.wait() == ([], EngineFailed("ValueError: A sequence's max_tokens must be > 0."))

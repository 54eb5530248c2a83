"""A warm turn says what a cold one says, and reads less."""

from tests.adapters.mlx.asking import HELLO, SEEDED, Turn, answer, submission
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.domain.messages import Message
from turnlog.domain.ports import End, Prompt


def follow_up(engine: MlxEngine, first: End) -> Prompt:
    assert first.output_ids is not None
    messages = [*HELLO, Message("assistant", first.text), Message("user", "And then?")]
    return engine.render(messages, recorded={2: first.output_ids})


def test_the_next_turn_does_not_read_again_what_is_known(engine: MlxEngine) -> None:
    prompt = engine.render(HELLO)
    first = answer(engine, submission(prompt, sampling=SEEDED))
    second = follow_up(engine, first)

    cold = answer(engine, submission(second))
    warm = answer(engine, submission(second, warm=first.cache))

    assert warm.cached_tokens == len(prompt.ids) + first.output_tokens
    assert (warm.output_ids, warm.text) == (cold.output_ids, cold.text)


def test_a_cache_can_be_used_by_several_turns(engine: MlxEngine) -> None:
    first = answer(engine, submission(engine.render(HELLO)))
    second = follow_up(engine, first)

    once, again = (answer(engine, submission(second, warm=first.cache)) for _ in range(2))

    assert (once.output_ids, once.cached_tokens) == (again.output_ids, again.cached_tokens)


def test_continuations_of_one_answer_run_at_once_on_its_cache(engine: MlxEngine) -> None:
    first = answer(engine, submission(engine.render(HELLO)))
    assert first.output_ids is not None
    assert first.cache is not None
    read = [*HELLO, Message("assistant", first.text)]
    follow_ups = [
        engine.render([*read, Message("user", question)], recorded={2: first.output_ids})
        for question in ("And then?", "Say it again, please, in other words.")
    ]
    # The first leaves the course early: what it does not use, the others do.
    prompts = [engine.render([HELLO[0], Message("user", "Hello you!")]), *follow_ups]
    cold = [answer(engine, submission(prompt)) for prompt in prompts]
    turns = [Turn() for _ in prompts]

    def continue_all() -> None:
        for turn_id, (prompt, turn) in enumerate(zip(prompts, turns, strict=True)):
            engine.submit(submission(prompt, turn_id=f"{turn_id}", warm=first.cache), turn.deliver)

    other = Turn(on_first_chunk=continue_all)
    engine.submit(submission(engine.render(HELLO), turn_id="other", budget=40), other.deliver)
    warm = [turn.end() for turn in turns]
    other.end()

    assert [end.output_ids for end in warm] == [end.output_ids for end in cold]
    shared = [engine.common_prefix(first.cache, prompt) for prompt in prompts]
    assert [end.cached_tokens for end in warm] == shared
    assert shared[0] < shared[1] == shared[2] == first.prompt_tokens + first.output_tokens
    assert {end.unbatched for end in warm} == {False}


def test_a_cache_of_another_course_is_used_as_far_as_both_go_together(engine: MlxEngine) -> None:
    first = answer(engine, submission(engine.render(HELLO)))
    other = engine.render([HELLO[0], Message("user", "Hello you!")])

    cold = answer(engine, submission(other))
    warm = answer(engine, submission(other, warm=first.cache))

    assert first.cache is not None
    assert warm.cached_tokens == engine.common_prefix(first.cache, other)
    assert 0 < warm.cached_tokens < len(other.ids) - 1
    assert warm.output_ids == cold.output_ids


def test_the_same_prompt_again_reads_its_last_token_only(engine: MlxEngine) -> None:
    asked = submission(engine.render(HELLO))
    first = answer(engine, asked)

    again = answer(engine, submission(asked.prompt, warm=first.cache))

    assert again.cached_tokens == len(asked.prompt.ids) - 1
    assert again.output_ids == first.output_ids


def test_a_dropped_cache_holds_no_memory(engine: MlxEngine) -> None:
    first = answer(engine, submission(engine.render(HELLO)))
    assert first.cache is not None
    before = engine.size_bytes(first.cache)

    engine.drop(first.cache)
    answer(engine, submission(engine.render(HELLO)))

    assert before > 0
    assert engine.size_bytes(first.cache) == 0

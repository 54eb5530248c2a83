from itertools import count
from pathlib import Path

import pytest

from tests.adapters.mlx.asking import GREEDY, HELLO, SEEDED, Turn, answer, ending, submission
from tests.adapters.mlx.networks import Shape, Stumbling, watched
from tests.tiny_model import CONTEXT_WINDOW_TOKENS
from turnlog.adapters.mlx import batch
from turnlog.adapters.mlx import engine as engines
from turnlog.adapters.mlx import turn as turns
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.runtime import ON_GPU
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import Cancelled, EngineFailed, TextChunk
from turnlog.domain.usage import Timing


def test_an_answer_ends_when_its_budget_is_used_up(engine: MlxEngine) -> None:
    prompt = engine.render(HELLO)

    turn = Turn()
    engine.submit(submission(prompt, budget=20), turn.deliver)

    end = turn.end()
    assert (end.finish_reason, end.output_tokens, end.prompt_tokens) == ("length", 20, len(prompt.ids))
    assert (end.cached_tokens, end.unbatched) == (0, True)


def test_the_pieces_of_an_answer_are_its_text(engine: MlxEngine) -> None:
    turn = Turn()

    engine.submit(submission(engine.render(HELLO), sampling=SEEDED, budget=60), turn.deliver)

    chunks, end = turn.wait()
    assert "".join(chunk.text for chunk in chunks) == getattr(end, "text", None)
    assert all(isinstance(chunk, TextChunk) and chunk.text for chunk in chunks)


def test_an_end_token_ends_the_answer_and_is_counted_but_not_said(
    engine: MlxEngine, tiny_folder: Path
) -> None:
    prompt = engine.render(HELLO)
    said = answer(engine, submission(prompt)).output_ids
    assert said is not None
    stop_at = next(place for place, token in enumerate(said) if place > 2 and token not in said[:place])

    model = load(tiny_folder)
    model.tokenizer.eos_token_ids = {said[stop_at]}
    stopping = MlxEngine(model)
    end = answer(stopping, submission(prompt))
    stopping.close()

    assert (end.finish_reason, end.output_ids) == ("stop", said[: stop_at + 1])
    assert end.text == answer(engine, submission(prompt, budget=stop_at)).text


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_a_seed_draws_the_same_alone_and_in_a_batch(engine: MlxEngine, sampling: Sampling) -> None:
    prompt = engine.render(HELLO)
    other = engine.render([Message("user", "Count to ten, please, and then back again.")])
    alone = answer(engine, submission(prompt, sampling=sampling, budget=30))

    joining = Turn()
    first = Turn(
        on_first_chunk=lambda: engine.submit(
            submission(prompt, turn_id="joining", sampling=sampling, budget=30), joining.deliver
        )
    )
    engine.submit(submission(other, turn_id="first", sampling=SEEDED, budget=60), first.deliver)
    batched = joining.end()

    assert (alone.unbatched, batched.unbatched, first.end().unbatched) == (True, False, False)
    assert batched.output_ids == alone.output_ids


def test_another_seed_draws_something_else(engine: MlxEngine) -> None:
    prompt = engine.render(HELLO)

    one, other = (
        answer(engine, submission(prompt, sampling=Sampling(temperature=1.5, top_p=0.9, seed=seed)))
        for seed in (1, 2)
    )

    assert one.output_ids != other.output_ids


def test_a_cancelled_turn_keeps_what_was_read(engine: MlxEngine) -> None:
    prompt = engine.render(HELLO)
    turn = Turn(on_first_chunk=lambda: engine.cancel("turn"))

    engine.submit(submission(prompt, budget=400), turn.deliver)

    _, final = turn.wait()
    assert isinstance(final, Cancelled)
    assert final.cache is not None
    assert engine.common_prefix(final.cache, prompt) == len(prompt.ids) - 1
    engine.drop(final.cache)


def test_a_turn_is_cancelled_before_it_began(engine: MlxEngine) -> None:
    prompt = engine.render(HELLO)
    late = Turn()

    def come_and_go() -> None:
        engine.submit(submission(prompt, turn_id="late"), late.deliver)
        engine.cancel("late")

    first = Turn(on_first_chunk=come_and_go)
    engine.submit(submission(prompt, turn_id="first"), first.deliver)

    assert late.wait() == ([], Cancelled())
    assert first.end().finish_reason == "length"


def test_what_a_turn_without_a_good_end_has_spent_is_told(tiny_folder: Path) -> None:
    """R-323: the tokens that were written count, and their ids are for the log."""
    network = Stumbling()
    engine = MlxEngine(watched(tiny_folder, network))
    prompt = engine.render(HELLO)
    whole = answer(engine, submission(prompt, budget=100)).output_ids
    failed = Turn(on_first_chunk=lambda: setattr(network, "stumbles", True))
    cancelled = Turn(on_first_chunk=lambda: engine.cancel("cancelled"))

    engine.submit(submission(prompt, turn_id="failed", budget=100), failed.deliver)
    assert isinstance(failed.wait()[1], EngineFailed)
    network.stumbles = False
    engine.submit(submission(prompt, turn_id="cancelled", budget=100), cancelled.deliver)
    assert isinstance(cancelled.wait()[1], Cancelled)
    engine.close()

    assert whole
    for stats in (failed.stats, cancelled.stats):
        assert stats is not None
        assert stats.output_ids
        assert stats.output_ids == whole[: stats.output_tokens]
        assert (stats.prompt_tokens, stats.cached_tokens, stats.unbatched) == (len(prompt.ids), 0, True)
        assert stats.timing.first_token_ms is not None


def test_a_step_on_a_cpu_reads_128_tokens_at_most() -> None:
    """What a step reads is how long a cancelled turn still runs, and how long others wait."""
    assert ON_GPU or batch.PREFILL_STEP_TOKENS <= 128


def test_cancelling_an_unknown_turn_does_nothing(engine: MlxEngine) -> None:
    engine.cancel("nobody")

    assert answer(engine, submission(engine.render(HELLO))).finish_reason == "length"


def test_a_turn_that_cannot_be_run_fails_by_itself(engine: MlxEngine) -> None:
    turn = Turn()

    engine.submit(submission(engine.render(HELLO), budget=0), turn.deliver)

    _, final = turn.wait()
    assert isinstance(final, EngineFailed)
    assert "max_tokens must be > 0" in final.message


def test_a_step_reads_a_bounded_piece_of_all_waiting_prompts_together(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "PREFILL_STEP_TOKENS", 32)
    shapes: list[Shape] = []
    engine = MlxEngine(watched(tiny_folder, shapes.append))
    prompts = [engine.render([Message("user", "x" * length)]) for length in (40, 100, 250)]
    alone = [answer(engine, submission(prompt)).output_ids for prompt in prompts]
    shapes.clear()

    joining = [Turn() for _ in prompts]

    def join() -> None:
        for turn_id, (prompt, turn) in enumerate(zip(prompts, joining, strict=True)):
            engine.submit(submission(prompt, turn_id=f"joining {turn_id}"), turn.deliver)

    first = Turn(on_first_chunk=join)
    engine.submit(submission(engine.render(HELLO), turn_id="first", budget=60), first.deliver)
    together = [turn.end().output_ids for turn in joining]
    first.end()
    engine.close()

    assert {(1, 32), (2, 16), (3, 10)} <= set(shapes)
    assert max(sequences * tokens for sequences, tokens in shapes) == 32
    assert together == alone


def test_no_more_turns_are_decoded_together_than_was_said(tiny_folder: Path) -> None:
    shapes: list[Shape] = []
    model = watched(tiny_folder, shapes.append)
    engine = MlxEngine(model, concurrency=2)
    prompt = engine.render(HELLO)
    joining = [Turn() for _ in range(3)]

    def join() -> None:
        for turn_id, turn in enumerate(joining):
            engine.submit(submission(prompt, turn_id=f"joining {turn_id}"), turn.deliver)

    first = Turn(on_first_chunk=join)
    engine.submit(submission(prompt, turn_id="first"), first.deliver)
    said = [turn.end().output_ids for turn in (first, *joining)]
    engine.close()

    assert engine.info.concurrency == 2
    assert max(sequences for sequences, _ in shapes) == 2
    assert said == [said[0]] * 4


def test_a_context_is_used_to_its_last_token(engine: MlxEngine) -> None:
    prompt = engine.render(HELLO)
    room = CONTEXT_WINDOW_TOKENS - len(prompt.ids)

    end = answer(engine, submission(prompt, budget=room))

    assert (end.finish_reason, end.output_tokens) == ("length", room)
    assert end.output_ids is not None
    assert end.output_ids[:12] == answer(engine, submission(prompt, budget=12)).output_ids


def test_the_times_of_a_turn_are_those_of_its_parts(
    engine: MlxEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-343: here each look at the clock is a second after the one before."""
    clock = count().__next__
    monkeypatch.setattr(engines, "perf_counter", clock)
    monkeypatch.setattr(turns, "perf_counter", clock)
    prompt = engine.render(HELLO)

    end = answer(engine, submission(prompt, budget=5))

    assert end.timing == Timing(
        first_token_ms=2000, prefill_tokens_per_s=len(prompt.ids), decode_tokens_per_s=1
    )


def test_a_reader_that_breaks_does_not_stop_the_engine(engine: MlxEngine) -> None:
    def break_down() -> None:
        raise ConnectionError("the reader is gone")

    asked = submission(engine.render(HELLO))
    turn = Turn(on_first_chunk=break_down)
    engine.submit(asked, turn.deliver)

    assert turn.end().output_ids == answer(engine, asked).output_ids


def test_closing_cancels_what_runs_and_what_comes_after(tiny_folder: Path) -> None:
    engine = MlxEngine.load(tiny_folder)
    prompt = engine.render(HELLO)
    running, late = Turn(), Turn()
    engine.submit(submission(prompt, budget=100_000), running.deliver)

    engine.close()
    engine.submit(submission(prompt), late.deliver)

    assert running.wait()[1] == Cancelled()
    assert late.wait()[1] == Cancelled()


def test_a_process_that_closed_its_engine_ends_cleanly(tiny_folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from adapters.mlx.engine import MlxEngine;"
        "from tests.adapters.mlx.asking import HELLO, answer, submission;"
        "engine = MlxEngine.load(Path(sys.argv[1]));"
        "answer(engine, submission(engine.render(HELLO))); engine.close()"
    )

    assert ending(program, tiny_folder) == (0, "")

"""What holds for turns of a batch as for those that run one after the other."""

from itertools import count
from pathlib import Path

import pytest

from adapters.mlx import batch
from adapters.mlx.engine import MlxEngine
from domain.messages import Message
from domain.ports import Cancelled, EngineFailed
from tests.adapters.mlx.asking import HELLO, Turn, answer, submission
from tests.adapters.mlx.networks import Stumbling, watched


@pytest.fixture(params=["tiny_folder", "llama4_folder"])
def lane(request: pytest.FixtureRequest) -> Path:
    """A model that can be batched, and one that cannot."""
    folder: Path = request.getfixturevalue(request.param)
    return folder


def test_a_cancelled_prefill_gives_back_what_was_read(lane: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PREFILL_STEP_TOKENS", 48)
    calls = count(1)
    engine = MlxEngine(watched(lane, lambda _: engine.cancel("cancelled") if next(calls) == 2 else None))
    prompt = engine.render([Message("user", "x" * 200)])
    turn = Turn()

    engine.submit(submission(prompt, turn_id="cancelled"), turn.deliver)
    chunks, final = turn.wait()
    assert isinstance(final, Cancelled)
    warm = answer(engine, submission(prompt, warm=final.cache))
    cold = answer(engine, submission(prompt))
    engine.close()

    assert chunks == []
    assert (warm.cached_tokens, cold.cached_tokens) == (2 * 48, 0)
    assert warm.output_ids == cold.output_ids


def test_a_step_that_raises_fails_all_turns_and_the_engine_goes_on(lane: Path) -> None:
    network = Stumbling()
    engine = MlxEngine(watched(lane, network))
    asked = submission(engine.render(HELLO))
    expected = answer(engine, asked).output_ids
    waiting = Turn()

    def stumble() -> None:
        network.stumbles = True
        engine.submit(submission(asked.prompt, turn_id="waiting"), waiting.deliver)

    turn = Turn(on_first_chunk=stumble)
    engine.submit(asked, turn.deliver)
    finals = [turn.wait()[1], waiting.wait()[1]]
    network.stumbles = False
    again = answer(engine, asked)
    engine.close()

    assert finals == [EngineFailed("RuntimeError: the GPU is on fire")] * 2
    assert again.output_ids == expected

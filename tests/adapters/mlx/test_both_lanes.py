"""What holds for turns of a batch as for those that run one after the other."""

from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.adapters.mlx.asking import HELLO, Turn, answer, submission
from tests.adapters.mlx.networks import Stumbling, watched
from turnlog.adapters.mlx import batch
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.domain.messages import Message
from turnlog.domain.ports import Cancelled, EngineFailed


class Lane(NamedTuple):
    """A model that can be batched or not, and whether the engine computes ahead."""

    folder: Path
    ahead: bool


@pytest.fixture(params=["tiny_folder", "llama4_folder"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=[True, False], ids=["ahead", "behind"])
def lane(folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lane:
    if not request.param:
        monkeypatch.setattr(batch, "ON_GPU", False)
        monkeypatch.setattr(batch, "_SMALL_WEIGHT_BYTES", 0)
    return Lane(folder, request.param)


def test_a_conversation_is_read_once(lane: Lane) -> None:
    """D-24. What a turn has said is read with the next one's question, or was read ahead."""
    engine = MlxEngine.load(lane.folder)
    first = answer(engine, submission(engine.render(HELLO)))
    asked = (*HELLO, Message("assistant", first.text), Message("user", "And then?"))
    assert first.output_ids is not None
    prompt = engine.render(asked, recorded={2: first.output_ids})

    warm = answer(engine, submission(prompt, warm=first.cache))
    cold = answer(engine, submission(prompt))
    engine.close()

    told = first.prompt_tokens + first.output_tokens
    assert (warm.cached_tokens, cold.cached_tokens) == (told if lane.ahead else told - 1, 0)
    assert warm.output_ids == cold.output_ids


def test_a_cancelled_prefill_gives_back_what_was_read(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PREFILL_STEP_TOKENS", 48)
    calls = count(1)
    engine = MlxEngine(
        watched(lane.folder, lambda _: engine.cancel("cancelled") if next(calls) == 2 else None)
    )
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


def test_a_step_that_raises_fails_all_turns_and_the_engine_goes_on(lane: Lane) -> None:
    network = Stumbling()
    engine = MlxEngine(watched(lane.folder, network))
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

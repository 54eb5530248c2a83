"""What the turns of a batch say in a step leaves at its end."""

import re
from pathlib import Path
from time import perf_counter

import pytest

from tests.adapters.mlx.asking import HELLO, submission
from turnlog.adapters.mlx.batch import Batch
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.outbox import Outbox
from turnlog.adapters.mlx.turn import BatchedTurn
from turnlog.domain.items import Logprob
from turnlog.domain.ports import EngineOutput, TextChunk

NAMES = ("a", "b", "c")


def test_a_step_is_told_when_all_of_it_is_known(
    tiny_folder: Path, engine: MlxEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All turns hear of it at once, so that whoever takes their outputs wakes up once."""
    seen: list[str] = []
    receive = BatchedTurn.receive

    def noting(turn: BatchedTurn, token: int, logprob: Logprob | None = None, *, ends: bool) -> None:
        seen.append(".")
        receive(turn, token, logprob, ends=ends)

    monkeypatch.setattr(BatchedTurn, "receive", noting)
    batch = Batch(load(tiny_folder))
    prompt = engine.render(HELLO)
    for name in NAMES:
        asked = submission(prompt, turn_id=name, budget=20)
        batch.start(asked, lambda _, name=name: seen.append(name), perf_counter())  # type: ignore[misc]
    while not batch.idle:
        seen.append(" ")
        batch.step()
    batch.close()

    steps = [step for step in "".join(seen).split() if not set(step) <= {"."}]
    assert len(steps) >= 10
    assert all(re.fullmatch(r"\.{3}[abc]+", step) for step in steps), steps


def test_one_who_cannot_take_an_output_does_not_keep_it_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outbox = Outbox()
    taken: list[EngineOutput] = []

    def breaks(_: EngineOutput) -> None:
        raise RuntimeError("the loop is closed")

    outbox.put(breaks, TextChunk("lost"))
    outbox.put(taken.append, TextChunk("there"))
    outbox.deliver()
    outbox.deliver()

    assert taken == [TextChunk("there")]
    assert "could not be delivered" in caplog.text

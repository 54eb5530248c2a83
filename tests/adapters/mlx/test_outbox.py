"""What the turns of a batch say in a step leaves at its end."""

from pathlib import Path
from threading import Event

import pytest

from adapters.mlx.engine import MlxEngine
from adapters.mlx.outbox import Outbox
from domain.ports import Deliver, EngineOutput, TextChunk
from tests.adapters.mlx.asking import HELLO, Turn, submission
from tests.adapters.mlx.networks import watched

NAMES = ("a", "b", "c")


def test_nothing_is_told_while_a_step_computes(tiny_folder: Path) -> None:
    """All turns hear of a step at once, so that whoever takes their outputs wakes up once."""
    seen: list[str] = []
    engine = MlxEngine(watched(tiny_folder, lambda _: seen.append(" ")))
    prompt = engine.render(HELLO)
    all_are_there = Event()

    def wait() -> None:
        assert all_are_there.wait(60)

    first = Turn(on_first_chunk=wait)
    heard = {name: Turn() for name in NAMES}

    def hears(name: str) -> Deliver:
        def deliver(output: EngineOutput) -> None:
            seen.append(name)
            heard[name].deliver(output)

        return deliver

    engine.submit(submission(prompt, turn_id="first", budget=4), first.deliver)
    for name in NAMES:
        engine.submit(submission(prompt, turn_id=name, budget=40), hears(name))
    all_are_there.set()
    for turn in heard.values():
        turn.end()
    engine.close()

    steps = "".join(seen).split()
    assert len(steps) >= 10
    assert {"".join(sorted(set(step))) for step in steps} == {"abc"}


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

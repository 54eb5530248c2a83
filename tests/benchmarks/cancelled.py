"""How long the engine goes on with a prompt whose turn is cancelled."""

import threading
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from turnlog.adapters.mlx import batch
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import EngineFinal, EngineOutput, Submission


def table(name: str, model: Path, runs: int) -> Table:
    """The wait after a cancel, beside the longest step of the engine until then."""
    found = Table(f"{name}: prefill cancelled", "over after, ms", "longest step, ms", "of that step")
    steps_s: list[float] = []
    step = batch.Batch.step

    def timed(self: Any) -> None:
        began_s = time.perf_counter()
        step(self)
        steps_s.append(time.perf_counter() - began_s)

    batch.Batch.step = timed  # type: ignore[method-assign]
    engine = MlxEngine.load(model)
    prompt = engine.render([Message("user", "the sea and the wind " * 400)])
    for run in range(runs):
        steps_s.clear()
        over = threading.Event()

        def deliver(output: EngineOutput, over: threading.Event = over) -> None:
            if isinstance(output, EngineFinal):
                over.set()

        sampling = Sampling(temperature=0.0, top_p=1.0, seed=0)
        turn = Submission(turn_id=f"{run}", prompt=prompt, sampling=sampling, output_budget_tokens=4)
        engine.submit(turn, deliver)
        while len(steps_s) < 2:
            time.sleep(0.001)
        # At another place of a step each time.
        time.sleep(max(steps_s) * run / runs)
        began_s = time.perf_counter()
        engine.cancel(turn.turn_id)
        over.wait()
        wait_s = time.perf_counter() - began_s
        longest_s = max(steps_s)
        found.add_row(
            f"{len(prompt.ids):,} tokens",
            f"{wait_s * 1000:,.1f}",
            f"{longest_s * 1000:,.1f}",
            f"{wait_s / longest_s:.2f}",
        )
    engine.close()
    batch.Batch.step = step  # type: ignore[method-assign]
    return found

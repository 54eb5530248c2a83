"""How these tests ask an engine: conversations, submissions, and what came back."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

from msgspec.structs import replace

from tests.waiting import taken
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    CompiledConstraint,
    End,
    EngineChunk,
    EngineFailed,
    EngineFinal,
    EngineOutput,
    Prompt,
    Submission,
    TextChunk,
    TurnStats,
)
from turnlog.domain.tools import Tool

COMPUTED_S = 30.0
"""How long a real model may take for the next piece of an answer on a busy machine."""

GREEDY = Sampling(temperature=0.0, top_p=1.0, seed=0)
SEEDED = Sampling(temperature=1.5, top_p=0.9, seed=20260101)

HELLO = (Message("system", "You are brief."), Message("user", "Hello there!"))


class Turn:
    """A turn of an engine as its outputs arrive. `on_first_chunk` is called on the engine's thread.

    `stats` is what a turn without a good end had come to, by its last output.
    """

    def __init__(self, on_first_chunk: Callable[[], None] = lambda: None) -> None:
        self._outputs: SimpleQueue[EngineOutput] = SimpleQueue()
        self._on_first_chunk = on_first_chunk
        self._begun = False
        self.stats: TurnStats | None = None

    def deliver(self, output: EngineOutput) -> None:
        self._outputs.put(output)
        if isinstance(output, TextChunk) and not self._begun:
            self._begun = True
            self._on_first_chunk()

    def wait(self) -> tuple[list[EngineChunk], EngineFinal]:
        """All chunks and the last output, without what was stats."""
        chunks: list[EngineChunk] = []
        while True:
            output = taken(self._outputs, COMPUTED_S)
            if isinstance(output, EngineFinal):
                assert self._outputs.empty()
                if isinstance(output, EngineFailed | Cancelled):
                    self.stats, output = output.stats, replace(output, stats=None)
                return chunks, output
            chunks.append(output)

    def end(self) -> End:
        """The last output, which is a good end."""
        _, final = self.wait()
        assert isinstance(final, End), final
        return final


def submission(
    prompt: Prompt,
    *,
    turn_id: str = "turn",
    sampling: Sampling = GREEDY,
    budget: int = 12,
    warm: CacheHandle | None = None,
    constraint: CompiledConstraint | None = None,
    tools: Sequence[Tool] = (),
) -> Submission:
    return Submission(
        turn_id=turn_id,
        prompt=prompt,
        sampling=sampling,
        output_budget_tokens=budget,
        warm=warm,
        constraint=constraint,
        tools=tuple(tools),
    )


def answer(engine: MlxEngine, asked: Submission) -> End:
    """The end of a turn that has the engine to itself."""
    turn = Turn()
    engine.submit(asked, turn.deliver)
    return turn.end()


def ending(program: str, folder: Path) -> tuple[int, str]:
    """The exit code, and what is said of errors, of a process that runs this with a model's folder."""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr

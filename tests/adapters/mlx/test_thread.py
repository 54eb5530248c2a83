"""Several models on one engine thread: they share its time and nothing else."""

import gc
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event
from time import perf_counter

import pytest

from tests.adapters.mlx.asking import HELLO, Turn, answer, ending, submission
from tests.adapters.mlx.networks import Stumbling, watched
from tests.waiting import SOON_S
from turnlog.adapters.mlx.batch import Batch
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.runtime import mx
from turnlog.adapters.mlx.source import MlxSource
from turnlog.adapters.mlx.thread import EngineThread
from turnlog.domain.ports import Cancelled, EngineFailed


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    """A thread for the engines of one test."""
    thread = EngineThread()
    yield thread
    thread.close()


def test_models_take_steps_in_turn(tiny_folder: Path, thread: EngineThread) -> None:
    steps: list[str] = []
    one = MlxEngine(watched(tiny_folder, lambda _: steps.append("one")), thread)
    other = MlxEngine(watched(tiny_folder, lambda _: steps.append("other")), thread)
    asked = submission(one.render(HELLO), budget=50)
    turns = [Turn(), Turn()]

    def submit_both() -> None:
        for engine, turn in zip((one, other), turns, strict=True):
            engine.submit(asked, turn.deliver)

    thread.ask(submit_both)
    said = [turn.end().output_ids for turn in turns]

    assert len(steps) > 2 * 50
    assert all(step != following for step, following in pairwise(steps))
    assert said[0] == said[1]


def test_a_model_that_fails_does_not_concern_the_others(tiny_folder: Path, thread: EngineThread) -> None:
    network = Stumbling()
    failing, other = MlxEngine(watched(tiny_folder, network), thread), MlxEngine(load(tiny_folder), thread)
    prompt = other.render(HELLO)
    expected = answer(other, submission(prompt, budget=60)).output_ids

    failed = Turn()

    def stumble() -> None:
        network.stumbles = True
        failing.submit(submission(prompt), failed.deliver)

    beside = Turn(on_first_chunk=stumble)
    other.submit(submission(prompt, budget=60), beside.deliver)

    assert failed.wait() == ([], EngineFailed("RuntimeError: the GPU is on fire"))
    assert beside.end().output_ids == expected
    network.stumbles = False
    assert answer(failing, submission(prompt, budget=60)).output_ids == expected


def test_a_closed_engine_takes_only_its_own_turns_with_it(tiny_folder: Path, thread: EngineThread) -> None:
    closing, other = (MlxEngine(load(tiny_folder), thread) for _ in range(2))
    prompt = other.render(HELLO)
    cancelled, late, going_on = Turn(), Turn(), Turn()
    closing.submit(submission(prompt, budget=100_000), cancelled.deliver)
    other.submit(submission(prompt, budget=300), going_on.deliver)

    closing.close()
    closing.submit(submission(prompt), late.deliver)

    assert (cancelled.wait()[1], late.wait()[1]) == (Cancelled(), Cancelled())
    assert going_on.end().output_tokens == 300


def test_a_closed_thread_ends_the_turns_of_all_models(tiny_folder: Path) -> None:
    thread = EngineThread()
    engines = [MlxEngine(load(tiny_folder), thread) for _ in range(2)]
    prompt = engines[0].render(HELLO)
    running, late = [Turn(), Turn()], [Turn(), Turn()]
    for engine, turn in zip(engines, running, strict=True):
        engine.submit(submission(prompt, budget=100_000), turn.deliver)

    thread.close()
    for engine, turn in zip(engines, late, strict=True):
        engine.submit(submission(prompt), turn.deliver)
        engine.close()

    assert [turn.wait()[1] for turn in running + late] == [Cancelled()] * 4


def test_memory_is_back_once_an_engine_is_closed(tiny_folder: Path, thread: EngineThread) -> None:
    """Whoever still has the engine does not keep the model with it."""
    gc.collect()
    before = mx.get_active_memory()
    engine = MlxSource(tiny_folder, thread).load()
    running = Turn()
    engine.submit(submission(engine.render(HELLO), budget=100_000), running.deliver)
    loaded = mx.get_active_memory()

    engine.close()

    assert loaded - before >= engine.info.weight_bytes
    assert running.wait()[1] == Cancelled()
    assert mx.get_active_memory() <= before


def test_released_memory_leaves_nothing_in_the_pool(tiny_folder: Path, thread: EngineThread) -> None:
    engine = MlxEngine(load(tiny_folder), thread)
    answer(engine, submission(engine.render(HELLO)))
    before = mx.get_cache_memory()

    engine.release_memory()
    engine.ping().result(SOON_S)

    assert before > mx.get_cache_memory() == 0


def test_a_process_that_loaded_beside_its_engine_thread_ends_cleanly(tiny_folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from adapters.mlx.source import MlxSource; from adapters.mlx.thread import EngineThread;"
        "from tests.adapters.mlx.asking import HELLO, answer, submission;"
        "thread = EngineThread(); source = MlxSource(Path(sys.argv[1]), thread);"
        "engines = [source.load(), source.load()];"
        "[answer(engine, submission(engine.render(HELLO))) for engine in engines]; thread.close()"
    )

    assert ending(program, tiny_folder) == (0, "")


class Gathering:
    """A work that waits for a second turn, with all the time it may need."""

    def __init__(self) -> None:
        self.turns = 0
        self.idle = True
        self.seen: list[int] = []
        self.stepped = Event()

    @property
    def gather_s(self) -> float:
        return 60.0 if self.turns < 2 else 0.0

    def come(self) -> None:
        self.turns += 1
        self.idle = False

    def step(self) -> None:
        self.seen.append(self.turns)
        self.idle = True
        self.stepped.set()

    def close(self) -> None:
        self.idle = True


def test_a_step_waits_for_turns_that_come_at_about_the_same_time(thread: EngineThread) -> None:
    work = Gathering()
    thread.add(work)

    thread.ask(work.come)
    for _ in range(20):
        # The thread is asked for something else, and has time for a step again and again.
        answered: Future[None] = Future()
        thread.ask(partial(answered.set_result, None))
        answered.result(SOON_S)
    thread.ask(work.come)

    assert work.stepped.wait(SOON_S), "no step was taken"
    assert work.seen == [2]


def test_turns_that_come_together_are_read_together(tiny_folder: Path, thread: EngineThread) -> None:
    """Nobody waits where others answer already, nor before it is known what a step takes."""
    model = load(tiny_folder)
    batch = Batch(model)
    asked = submission(MlxEngine(model, thread).render(HELLO), budget=2)
    waits_s: list[float] = []

    def look() -> None:
        waits_s.append(batch.gather_s)

    def start() -> None:
        batch.start(asked, lambda _: None, perf_counter())

    for command in (look, start, look, batch.step, start, look, batch.step, look, batch.close):
        thread.ask(command)
    ended: Future[None] = Future()
    thread.ask(lambda: ended.set_result(None))
    ended.result(SOON_S)

    idle, not_known_yet, again, stepped = waits_s
    assert (idle, not_known_yet, stepped) == (0.0, 0.0, 0.0)
    assert again > 0.0

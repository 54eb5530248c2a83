"""The sweep loop: step by step until nothing is left, again every few minutes, whatever happens to a step."""

from collections.abc import Set
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from tests.fakes.clock import VirtualClock, VirtualLoop
from turnlog.app.turns.expiry import PERIOD_S, sweep
from turnlog.domain.errors import StorageError


class Expirer:
    """Answers each step by the next of `outcomes`, then by 0. `asked`: when that was, and what it spared."""

    def __init__(self, loop: VirtualLoop, *outcomes: int | StorageError) -> None:
        self._loop = loop
        self._outcomes = list(outcomes)
        self.asked: list[tuple[float, Set[str]]] = []

    def expire(self, now_s: int, *, spare: Set[str] = frozenset(), limit: int = 0) -> Future[int]:
        self.asked.append((self._loop.time(), spare))
        step: Future[int] = Future()
        match self._outcomes.pop(0) if self._outcomes else 0:
            case StorageError() as error:
                step.set_exception(error)
            case count:
                step.set_result(count)
        return step


def test_the_sweep_goes_on_until_nothing_is_left_and_comes_again() -> None:
    """R-029: every five minutes, and after a step that failed, too."""
    loop = VirtualLoop()
    expirer = Expirer(loop, 3, 1, 0, StorageError("locked"), 2)
    persistence: Any = SimpleNamespace(open_ids=frozenset({"resp_1"}))
    loop.create_task(sweep(expirer, persistence, VirtualClock(loop)))

    loop.run_for(2 * PERIOD_S)
    loop.close()

    times = [at for at, _ in expirer.asked]
    assert times == [0, 0, 0, PERIOD_S, 2 * PERIOD_S, 2 * PERIOD_S]
    assert {spared for _, spared in expirer.asked} == {frozenset({"resp_1"})}

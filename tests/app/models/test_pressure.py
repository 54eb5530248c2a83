"""What is done when engines hold more memory than the budget."""

from tests.fakes.engine import PuppetEngine
from turnlog.app.models.pressure import LOOKS_TO_ACT, Pressure
from turnlog.domain.ports import Vitals


class HoldingEngine(PuppetEngine):
    """An engine that holds what the test says."""

    def __init__(self, name: str, *, weight_bytes: int, held_bytes: int) -> None:
        super().__init__(name, weight_bytes=weight_bytes)
        self.held_bytes = held_bytes
        self.released = 0

    def vitals(self) -> Vitals:
        """What the test says."""
        return Vitals(memory_bytes=self.held_bytes)

    def release_memory(self) -> None:
        """Count it."""
        self.released += 1


def test_nothing_is_done_within_the_budget() -> None:
    engine = HoldingEngine("a", weight_bytes=10, held_bytes=100)

    looks = [Pressure(budget).look([engine]) for budget in (100, None)]

    assert (looks, engine.released, engine.crashed.done()) == ([0, 0], 0, False)


def test_the_engine_that_has_grown_most_is_told_and_then_ended() -> None:
    big = HoldingEngine("big", weight_bytes=90, held_bytes=100)
    grown = HoldingEngine("grown", weight_bytes=10, held_bytes=60)
    pressure = Pressure(120)

    excess = [pressure.look([big, grown]) for _ in range(LOOKS_TO_ACT)]
    before = grown.crashed.done()
    pressure.look([big, grown])

    assert excess == [40] * LOOKS_TO_ACT
    assert (grown.released, before) == (1, False)
    assert "held 60 bytes" in grown.crashed.result(0).reason
    assert (big.released, big.crashed.done()) == (0, False)


def test_an_engine_that_gives_back_in_time_is_left_alone() -> None:
    engine = HoldingEngine("a", weight_bytes=10, held_bytes=200)
    pressure = Pressure(100)

    for held_bytes in (200, 200, 90, 200, 200, 200):
        engine.held_bytes = held_bytes
        pressure.look([engine])

    assert (engine.released, engine.crashed.done()) == (2, False)

"""The idle sweeper in virtual time: when free memory is given back, and when it is not."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.fakes.clock import VirtualLoop
from turnlog.app.models.idle import IdleSweeper, Timer

DELAY_S = 30.0
ALMOST_S = 29.0


class Given:
    """A sweeper in an event loop of its own; `drained_s` says at which of its seconds it drained."""

    def __init__(self, delay_s: float = DELAY_S) -> None:
        self.loop = VirtualLoop()
        self.drained_s: list[float] = []
        self.fails = False
        self.sweeper = IdleSweeper(self._drain, delay_s, self.loop.call_later)

    def _drain(self) -> None:
        self.drained_s.append(self.loop.time())
        if self.fails:
            raise RuntimeError("no device")

    def turn(self) -> None:
        """A turn that takes no time."""
        self.sweeper.begin()
        self.sweeper.end()

    def passes(self, seconds: float) -> None:
        """So much time passes."""
        self.loop.run_for(seconds)

    def close(self) -> None:
        """Close its loop."""
        assert self.loop.complaints == []
        self.loop.close()


@pytest.fixture
def idle() -> Iterator[Given]:
    """A sweeper with a delay of 30 seconds, at second 0."""
    with closing(Given()) as given:
        yield given


def test_memory_is_given_back_once_after_the_last_turn(idle: Given) -> None:
    """R-375."""
    idle.turn()

    idle.passes(10 * DELAY_S)

    assert idle.drained_s == [30.0]


def test_the_delay_begins_when_the_last_of_several_turns_ends(idle: Given) -> None:
    """R-375."""
    idle.sweeper.begin()
    idle.sweeper.begin()
    idle.sweeper.end()
    idle.passes(100)
    idle.sweeper.end()

    idle.passes(100)

    assert idle.drained_s == [130.0]


def test_a_turn_puts_the_drain_off_that_was_to_come(idle: Given) -> None:
    """R-377."""
    idle.turn()
    idle.passes(ALMOST_S)
    idle.sweeper.begin()
    idle.passes(100)
    assert idle.drained_s == []

    idle.sweeper.end()
    idle.passes(100)

    assert idle.drained_s == [159.0]


def test_every_pause_has_its_drain(idle: Given) -> None:
    idle.turn()
    idle.passes(100)
    idle.turn()
    idle.passes(100)

    assert idle.drained_s == [30.0, 130.0]


def test_the_start_and_a_load_arm_nothing(idle: Given) -> None:
    """R-382."""
    idle.passes(100)
    with idle.sweeper.suspended():
        idle.passes(100)

    idle.passes(100)

    assert idle.drained_s == []


def test_a_load_after_the_drain_owes_no_second_one(idle: Given) -> None:
    """R-382: what is free after a load alone is for the next turn."""
    idle.turn()
    idle.passes(100)
    with idle.sweeper.suspended():
        idle.passes(100)

    idle.passes(100)

    assert idle.drained_s == [30.0]


def test_nothing_is_drained_while_a_load_waits_or_reads(idle: Given) -> None:
    """R-051, R-384, G-027: the suspension begins before the load waits its turn."""
    idle.turn()
    idle.passes(ALMOST_S)
    with idle.sweeper.suspended():
        idle.passes(100)
        assert idle.drained_s == []

    idle.passes(100)

    assert idle.drained_s == [159.0]


def test_a_turn_that_ends_during_a_load_is_drained_for_after_it(idle: Given) -> None:
    """R-384: a suspension prevents arming."""
    idle.sweeper.begin()
    with idle.sweeper.suspended():
        idle.sweeper.end()
        idle.passes(100)
        assert idle.drained_s == []

    idle.passes(100)

    assert idle.drained_s == [130.0]


def test_a_load_that_ends_during_a_turn_arms_nothing(idle: Given) -> None:
    """R-384."""
    idle.turn()
    with idle.sweeper.suspended():
        idle.sweeper.begin()
    idle.passes(100)
    assert idle.drained_s == []

    idle.sweeper.end()
    idle.passes(100)

    assert idle.drained_s == [130.0]


def test_the_last_of_overlapping_loads_arms(idle: Given) -> None:
    """R-384: suspensions are counted."""
    idle.turn()
    with idle.sweeper.suspended():
        with idle.sweeper.suspended():
            idle.passes(50)
        idle.passes(50)
        assert idle.drained_s == []

    idle.passes(100)

    assert idle.drained_s == [130.0]


def test_a_load_that_fails_arms_as_well(idle: Given) -> None:
    """R-384."""
    idle.turn()
    with pytest.raises(OSError, match="no such file"), idle.sweeper.suspended():
        idle.passes(100)
        raise OSError("no such file")

    idle.passes(100)

    assert idle.drained_s == [130.0]


def test_an_end_without_a_begin_is_ignored(idle: Given) -> None:
    """R-385."""
    idle.sweeper.end()
    idle.passes(100)
    assert idle.drained_s == []

    idle.sweeper.begin()  # it is counted as one, not against the end before it
    idle.passes(100)
    assert idle.drained_s == []


def test_a_second_end_does_not_put_the_drain_off(idle: Given) -> None:
    """R-378, R-385."""
    idle.turn()
    idle.passes(ALMOST_S)
    idle.sweeper.end()

    idle.passes(100)

    assert idle.drained_s == [30.0]


def test_a_drain_that_fails_is_logged_and_changes_nothing(
    idle: Given, caplog: pytest.LogCaptureFixture
) -> None:
    """R-383."""
    idle.fails = True
    idle.turn()
    idle.passes(100)
    idle.fails = False
    idle.turn()
    idle.passes(100)

    assert idle.drained_s == [30.0, 130.0]
    assert caplog.messages == ["[responses] could not release the engine's free memory"]


def test_closing_cancels_the_drain_that_was_to_come(idle: Given) -> None:
    """R-385."""
    idle.turn()

    idle.sweeper.close()

    idle.passes(100)
    assert idle.drained_s == []


def test_a_turn_that_ends_after_closing_is_drained_for_no_more(idle: Given) -> None:
    """R-385."""
    idle.sweeper.begin()
    idle.sweeper.close()
    idle.sweeper.end()
    with idle.sweeper.suspended():
        idle.passes(100)

    idle.passes(100)

    assert idle.drained_s == []


def test_a_delay_of_zero_never_drains() -> None:
    """R-381: every call passes through."""
    with closing(Given(delay_s=0)) as idle:
        idle.sweeper.begin()
        with idle.sweeper.suspended():
            idle.sweeper.end()
        idle.passes(1_000)

        assert idle.drained_s == []


# ── a timer that fires though it was cancelled ────────────────────────────────────────────────────


class LateTimers:
    """Timers of an event loop that has taken them up already: cancelling is noted, but comes too late."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.set: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Note the timer."""
        self.set.append((delay_s, callback))
        return self

    def cancel(self) -> None:
        """Too late."""
        self.cancelled += 1

    def fire(self) -> None:
        """What is due is called, whatever became of it."""
        due, self.set = self.set, []
        for _, callback in due:
            callback()


def late() -> tuple[IdleSweeper, LateTimers, list[str]]:
    """A sweeper whose one turn has ended, its timers, and what it drained."""
    drained: list[str] = []
    timers = LateTimers()
    sweeper = IdleSweeper(lambda: drained.append("drained"), DELAY_S, timers.call_later)
    sweeper.begin()
    sweeper.end()
    return sweeper, timers, drained


def test_a_timer_that_fires_in_a_turn_drains_nothing() -> None:
    """R-383: and sets no other, for the turn's end will."""
    sweeper, timers, drained = late()
    sweeper.begin()

    timers.fire()

    assert (drained, timers.set) == ([], [])


def test_a_timer_that_fires_in_a_load_is_set_again() -> None:
    """R-383."""
    sweeper, timers, drained = late()

    with sweeper.suspended():
        timers.fire()

        assert (drained, [delay_s for delay_s, _ in timers.set]) == ([], [DELAY_S])


def test_a_timer_that_fires_in_time_drains() -> None:
    """R-383."""
    _, timers, drained = late()

    timers.fire()

    assert (drained, timers.set) == (["drained"], [])


def test_a_turn_and_a_load_cancel_the_timer_that_is_set() -> None:
    """R-377, R-384."""
    sweeper, timers, _ = late()
    assert timers.cancelled == 0

    sweeper.begin()
    assert timers.cancelled == 1

    sweeper.end()
    with sweeper.suspended():
        assert timers.cancelled == 2


def test_a_turn_that_ends_in_a_load_sets_no_timer() -> None:
    """R-384."""
    sweeper, timers, _ = late()
    sweeper.begin()

    with sweeper.suspended():
        timers.set.clear()
        sweeper.end()

        assert timers.set == []
    assert len(timers.set) == 1

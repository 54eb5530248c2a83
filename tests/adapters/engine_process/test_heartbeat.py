"""When a process counts as silent, and when it is ended for that."""

import pytest

from turnlog.adapters.engine_process.heartbeat import (
    LONG_STEP_S,
    SILENCE_LIMIT_S,
    SILENT_S,
    STEP_LIMIT_S,
    TICK_S,
    Heartbeat,
)
from turnlog.adapters.engine_process.messages import Pong

BEGIN_S = 1_000.0


def ticked(heartbeat: Heartbeat, since_s: float, until_s: float) -> list[str | None]:
    """The verdicts while time goes on without an answer."""
    verdicts = []
    while since_s <= until_s:
        heartbeat.asks(since_s)
        verdicts.append(heartbeat.verdict(since_s))
        since_s += TICK_S
    return verdicts


def test_a_process_that_answers_is_well() -> None:
    heartbeat = Heartbeat(BEGIN_S)

    asked = []
    for tick in range(100):
        now_s = BEGIN_S + tick * TICK_S
        asked.append(heartbeat.asks(now_s))
        heartbeat.receive(Pong(0.0, 7))

    assert all(asked)
    assert (heartbeat.problem(now_s), heartbeat.verdict(now_s), heartbeat.memory_bytes) == (None, None, 7)


def test_a_silent_process_is_a_problem_within_two_seconds_and_is_ended_later() -> None:
    heartbeat = Heartbeat(BEGIN_S)

    verdicts = ticked(heartbeat, BEGIN_S, BEGIN_S + SILENCE_LIMIT_S + TICK_S)

    assert TICK_S + SILENT_S < 2
    problem = heartbeat.problem(BEGIN_S + SILENT_S + TICK_S)
    assert problem and "has not responded" in problem
    assert [bool(verdict) for verdict in verdicts] == [False] * (len(verdicts) - 1) + [True]


def test_a_server_that_stood_still_itself_asks_again_before_it_judges() -> None:
    heartbeat = Heartbeat(BEGIN_S)
    heartbeat.asks(BEGIN_S)
    later_s = BEGIN_S + 60 * SILENCE_LIMIT_S

    heartbeat.asks(later_s)

    assert heartbeat.verdict(later_s) is None


@pytest.mark.parametrize(
    ("step_s", "problem", "ended"),
    [(LONG_STEP_S - 1, False, False), (LONG_STEP_S + 1, True, False), (STEP_LIMIT_S + 1, True, True)],
)
def test_a_long_step_is_a_problem_and_a_very_long_one_a_hang(
    step_s: float, problem: bool, ended: bool
) -> None:
    heartbeat = Heartbeat(BEGIN_S)
    heartbeat.asks(BEGIN_S)

    heartbeat.receive(Pong(step_s, 0))

    assert (bool(heartbeat.problem(BEGIN_S)), bool(heartbeat.verdict(BEGIN_S))) == (problem, ended)

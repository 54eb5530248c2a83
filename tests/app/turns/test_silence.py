"""Silence is noticed after its limit, in virtual time."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.clock import VirtualLoop
from turnlog.app.turns.silence import SilenceTimeout


class Given:
    """A silence of 10 seconds that says at which second it ran out."""

    def __init__(self, limit_s: float | None = 10.0) -> None:
        self.loop = VirtualLoop()
        self.ran_out_s: list[float] = []
        self.silence = self._on_the_loop(limit_s)

    def at(self, second: float) -> SilenceTimeout:
        """The silence at this second, when all that was to happen before has happened."""
        self.loop.run_for(second - self.loop.time())
        return self.silence

    def _on_the_loop(self, limit_s: float | None) -> SilenceTimeout:
        async def begin() -> SilenceTimeout:
            return SilenceTimeout(limit_s, lambda: self.ran_out_s.append(self.loop.time()))

        return self.loop.run_until_complete(begin())


@pytest.fixture
def given() -> Iterator[Given]:
    given = Given()
    yield given
    given.loop.close()


def test_it_runs_out_after_its_limit_and_again_after_each_further_one(given: Given) -> None:
    given.at(35.0)

    assert given.ran_out_s == [10.0, 20.0, 30.0]


def test_a_renewal_puts_it_off(given: Given) -> None:
    given.at(9.0).renew()
    given.at(13.0).renew()
    given.at(30.0)

    assert given.ran_out_s == [23.0]


def test_however_often_it_is_renewed_there_is_one_timer(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_s: list[float] = []
    call_later = given.loop.call_later

    def noting(delay_s: float, *rest: Any) -> asyncio.TimerHandle:
        set_s.append(delay_s)
        return call_later(delay_s, *rest)

    monkeypatch.setattr(given.loop, "call_later", noting)
    for tenth in range(1, 80):
        given.at(tenth / 10).renew()
    given.at(10.0)

    assert set_s == [pytest.approx(7.9)]


def test_once_closed_it_never_runs_out(given: Given) -> None:
    given.at(5.0).close()
    given.at(100.0)

    assert given.ran_out_s == []


def test_it_may_have_no_end() -> None:
    given = Given(None)
    given.at(1e6).close()
    given.loop.close()

    assert given.ran_out_s == []

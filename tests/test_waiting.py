"""A wait that does not end fails its test by an assertion that says what was awaited."""

import asyncio
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from tests import waiting
from tests.waiting import bounded, received, taken, until


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SOON_S", 0.01)


async def test_a_test_that_awaits_what_never_comes_names_the_line() -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"still at `await .*wait\(\)` \(test_waiting.py:20\)"):
        await bounded(hangs, 0.01)()


async def test_a_timeout_of_what_is_tested_stays_one() -> None:
    async def times_out() -> None:
        raise TimeoutError("the tested timeout")

    with pytest.raises(TimeoutError, match="the tested timeout"):
        await bounded(times_out, 10)()


def test_a_condition_that_never_holds_is_told_with_its_value() -> None:
    with pytest.raises(AssertionError, match=r"still \[\] after"):
        until(list)


def test_a_sign_that_does_not_come_is_told_with_what_came() -> None:
    pieces: Iterator[str] = iter(["on", "e"])

    with pytest.raises(AssertionError, match="the end came before 'two', behind 'one'"):
        received(lambda: next(pieces, ""), "two")
    with pytest.raises(AssertionError, match="no 'two' within"):
        received(lambda: "x", "two")


def test_a_queue_that_stays_empty_is_told() -> None:
    with pytest.raises(AssertionError, match="nothing came within"):
        taken(SimpleQueue(), 0.01)

"""Waits that end: what a test waits for comes soon, or an assertion says what did not come."""

import asyncio
import functools
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, AnyStr, ParamSpec, TypeVar

SOON_S = 10.0
"""How long a test waits for what takes milliseconds on an idle machine."""

PAUSE_S = 0.01

_TESTS = str(Path(__file__).parent)
_Found = TypeVar("_Found")
_Arguments = ParamSpec("_Arguments")


def until(condition: Callable[[], _Found]) -> _Found:
    """The first true value that `condition` returns; it is called again and again."""
    deadline_s = time.monotonic() + SOON_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"still {found!r} after {SOON_S:g} s"
        time.sleep(PAUSE_S)
    return found


def received(read: Callable[[], AnyStr], sign: AnyStr) -> AnyStr:
    """Everything that `read` returns until `sign` is in it."""
    deadline_s = time.monotonic() + SOON_S
    told = piece = read()
    while sign not in told:
        assert piece, f"the end came before {sign!r}, behind {told[-200:]!r}"
        assert time.monotonic() < deadline_s, f"no {sign!r} within {SOON_S:g} s, only {told[-200:]!r}"
        piece = read()
        told += piece
    return told


def taken(queue: "SimpleQueue[_Found]", limit_s: float = SOON_S) -> _Found:
    """What another thread puts next into `queue`."""
    try:
        return queue.get(timeout=limit_s)
    except Empty:
        raise AssertionError(f"nothing came within {limit_s:g} s") from None


def bounded(
    test: Callable[_Arguments, Coroutine[Any, Any, None]], limit_s: float
) -> Callable[_Arguments, Coroutine[Any, Any, None]]:
    """The test, which fails after `limit_s` and names the line that it still awaits."""

    @functools.wraps(test)
    async def within_limit(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        try:
            async with asyncio.timeout(limit_s) as limit:
                await test(*args, **kwargs)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise AssertionError(f"after {limit_s:g} s still at {_awaited(error)}") from error

    return within_limit


def _awaited(expired: TimeoutError) -> str:
    """The line below `tests/` at which a test was cancelled."""
    assert expired.__cause__
    frames = traceback.extract_tb(expired.__cause__.__traceback__)
    last = [frame for frame in frames if frame.filename.startswith(_TESTS)][-1]
    return f"`{last.line}` ({Path(last.filename).name}:{last.lineno})"

"""Waits for what should come at once, and calls it lost when it does not come for a long time."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.serving import LONG_S

PAUSE_S = 0.01

_Found = TypeVar("_Found")


def until(condition: Callable[[], _Found]) -> _Found:
    """What `condition` gives as soon as that counts as true."""
    deadline_s = time.monotonic() + LONG_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"still {found!r} after {LONG_S:g} s"
        time.sleep(PAUSE_S)
    return found

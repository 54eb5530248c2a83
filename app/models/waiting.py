"""The asynchronous side of lanes, gate and memory: it waits until what was asked for is there."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar


class Releasable(Protocol):
    """Something asked for, that can be given back whether or not it is there yet."""

    def release(self) -> None:
        """Give it back; without effect the second time."""


Asked = TypeVar("Asked", bound=Releasable)


async def acquired(ask: Callable[[Callable[[], None]], Asked]) -> Asked:
    """What `ask` asks for, once it is there; if the wait is cut short it is given back.

    Args:
        ask: asks, with what is to be called when it is there.
    """
    there = asyncio.get_running_loop().create_future()

    def enter() -> None:
        if not there.done():
            there.set_result(None)

    asked = ask(enter)
    try:
        await there
    except BaseException:
        asked.release()
        raise
    return asked

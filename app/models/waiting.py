"""The asynchronous side of lanes, gate and memory: await the resource that was requested."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar


class Releasable(Protocol):
    """A requested resource, which can be released whether or not it has been granted."""

    def release(self) -> None:
        """Give it back; no effect the second time."""


Asked = TypeVar("Asked", bound=Releasable)


async def acquired(ask: Callable[[Callable[[], None]], Asked]) -> Asked:
    """Await the resource that `ask` requests; releases it if the wait is cancelled.

    Args:
        ask: requests the resource, given the callback for when it is granted.
    """
    granted = asyncio.get_running_loop().create_future()

    def enter() -> None:
        if not granted.done():
            granted.set_result(None)

    asked = ask(enter)
    try:
        await granted
    except BaseException:
        asked.release()
        raise
    return asked

"""How late the event loop is: everything that holds it up holds up every stream."""

import asyncio
from collections.abc import Callable

PERIOD_S = 0.5


async def watch_loop(lagged: Callable[[float], None]) -> None:
    """Tell, every half second until it is cancelled, by how many seconds a timer fired too late."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + PERIOD_S
        await asyncio.sleep(PERIOD_S)
        lagged(max(0.0, loop.time() - due_s))

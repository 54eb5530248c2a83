"""What the HTTP layer and the server ask: the use cases of one running service."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from app.health import Health
from app.models import Models
from app.readings import Readings
from app.turns import Turns


@dataclass(frozen=True)
class Service:
    """The use cases, wired by the composition root.

    Args:
        heartbeat_s: after how many seconds of silence a stream gives a sign of life.
        recover: ends the turns that an earlier process lost; to be done before any turn begins.
        sweep: removes expired content until it is cancelled.
        announce: tells other programs the address that this service answers on.
    """

    models: Models
    turns: Turns
    readings: Readings
    health: Health
    heartbeat_s: float
    recover: Callable[[], Awaitable[int]]
    sweep: Callable[[], Coroutine[Any, Any, None]]
    announce: Callable[[str], None]

"""What the HTTP layer asks: the use cases of one running server."""

from dataclasses import dataclass

from app.models import Models
from app.readings import Readings
from app.turns import Turns


@dataclass(frozen=True)
class Service:
    """The use cases, wired by the composition root.

    `heartbeat_s` is after how many seconds of silence a stream gives a sign of life.
    """

    models: Models
    turns: Turns
    readings: Readings
    heartbeat_s: float

"""What the HTTP layer asks: the use cases of one running server."""

from dataclasses import dataclass

from app.models import Models
from app.readings import Readings
from app.turns import Turns


@dataclass(frozen=True)
class Service:
    """The use cases, wired by the composition root."""

    models: Models
    turns: Turns
    readings: Readings

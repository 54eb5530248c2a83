"""Floors that are ended with their test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.app.models.acquired import Entered
from tests.app.models.floor import Floor
from turnlog.domain.ports import ModelSource

NewFloor = Callable[..., Floor]


@pytest.fixture
def acquired() -> Entered:
    """Nobody yet."""
    return Entered()


@pytest.fixture
def new_floor() -> Iterator[NewFloor]:
    """Makes a floor on which the declared models can be loaded."""
    floors: list[Floor] = []

    def make(declared: dict[str, ModelSource], **options: Any) -> Floor:
        floors.append(Floor(declared, **options))
        return floors[-1]

    yield make
    for floor in floors:
        floor.close()

"""The models that are served: their names, engines and lanes."""

import asyncio
from collections.abc import Iterable

from domain.errors import ModelNotFoundError
from domain.ports import InferenceEngine


class ServedModel:
    """A model under its name. `lane` lets in as many turns as the engine runs at once, in order of arrival.

    `instance_id` counts the models of this process from 1; it is never used again within it (R-061).
    """

    def __init__(self, name: str, engine: InferenceEngine, *, instance_id: int, registered_s: int) -> None:
        self.name = name
        self.engine = engine
        self.instance_id = instance_id
        self.registered_s = registered_s
        self.lane = asyncio.Semaphore(engine.info.concurrency)


class Models:
    """What this server serves, by name."""

    def __init__(self, served: Iterable[ServedModel]) -> None:
        self._by_name = {model.name: model for model in served}

    def find(self, name: str) -> ServedModel:
        """The model of that name.

        Raises:
            ModelNotFoundError: there is none; the error lists those there are.
        """
        if name not in self._by_name:
            raise ModelNotFoundError(name, self._by_name)
        return self._by_name[name]

    def all(self) -> list[ServedModel]:
        """Every served model, in the order they were declared."""
        return list(self._by_name.values())

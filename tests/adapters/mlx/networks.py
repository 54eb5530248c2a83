"""A tiny model under watch: what its network is asked to compute, and what happens then."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnlog.adapters.mlx.model import LoadedModel, load
from turnlog.adapters.mlx.runtime import make_prompt_cache

Shape = tuple[int, ...]
"""Sequences, and tokens of each."""


class WatchedNetwork:
    """A network that calls `before` with the shape of its input each time before it computes."""

    def __init__(self, network: Any, before: Callable[[Shape], object]) -> None:
        self._network = network
        self._before = before
        self.layers = network.layers

    def make_cache(self) -> Any:
        return make_prompt_cache(self._network)

    def __call__(self, inputs: Any, cache: Any) -> Any:
        self._before(inputs.shape)
        return self._network(inputs, cache=cache)


class Stumbling:
    """For a `WatchedNetwork`: raises while `stumbles` is set."""

    stumbles = False

    def __call__(self, _: Shape) -> None:
        if self.stumbles:
            raise RuntimeError("the GPU is on fire")


def watched(folder: Path, before: Callable[[Shape], object]) -> LoadedModel:
    """The model in `folder` with a `WatchedNetwork`."""
    model = load(folder)
    return replace(model, network=WatchedNetwork(model.network, before))

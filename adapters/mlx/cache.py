"""The KV cache of one sequence, kept so that the model need not compute it again."""

from copy import deepcopy
from typing import Any

from turnlog.adapters.engine_process.messages import CacheExtent
from turnlog.adapters.mlx.runtime import can_trim_prompt_cache, mx, trim_prompt_cache
from turnlog.domain.tokens import TokenIds


class MlxCache:
    """The ids that were read, and the cache of each of the model's layers.

    Only the engine thread computes with it; ids and sizes may be read on any thread.
    """

    def __init__(self, ids: TokenIds, layers: list[Any]) -> None:
        # A layer cut out of a batch is lazy and would keep the whole batch alive.
        mx.eval([layer.state for layer in layers])
        self.ids = ids
        self._layers = layers
        # Llama 4's layers drop everything more than a chunk's length back.
        chunked = [layer for layer in layers if hasattr(layer, "start_position")]
        self.extent = CacheExtent(
            len(ids),
            can_trim_prompt_cache(layers),
            tuple((int(layer.start_position), int(layer.chunk_size)) for layer in chunked),
        )

    def common_prefix(self, prompt: TokenIds) -> int:
        """How many ids at the start of `prompt` need not be read again; at least one is left to read."""
        return self.extent.spared(self.ids, prompt)

    def first(self, count: int) -> list[Any]:
        """The layers as they were after `count` ids; the cache itself is not changed.

        Cheap: the copy shares its memory until one of the two is written to.
        """
        layers = deepcopy(self._layers)
        trim_prompt_cache(layers, len(self.ids) - count)
        return layers

    def size_bytes(self) -> int:
        """Memory that the layers hold."""
        return sum(layer.nbytes for layer in self._layers)

    def drop(self) -> None:
        """Free the memory; the cache is unusable afterwards."""
        self.ids = ()
        self._layers = []

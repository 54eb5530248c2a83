"""What a model has read of one sequence, kept so that it need not read it again."""

from copy import deepcopy
from typing import Any

from turnlog.adapters.mlx.runtime import can_trim_prompt_cache, mx, trim_prompt_cache
from turnlog.domain import tokens
from turnlog.domain.tokens import TokenIds


class MlxCache:
    """The ids that were read, and what each layer of the model keeps of them.

    Only the engine thread computes with it; ids and sizes may be looked at from anywhere.
    """

    def __init__(self, ids: TokenIds, layers: list[Any]) -> None:
        # A layer cut out of a batch is lazy and would keep the whole batch alive.
        mx.eval([layer.state for layer in layers])
        self.ids = ids
        self._layers = layers
        self._trimmable = can_trim_prompt_cache(layers)
        # Llama 4's, which let go of what is a chunk's length behind them.
        self._chunked = [layer for layer in layers if hasattr(layer, "start_position")]

    def common_prefix(self, prompt: TokenIds) -> int:
        """How many ids at the start of `prompt` need not be read again; at least one is left to read."""
        shared = min(tokens.common_prefix(self.ids, prompt), len(prompt) - 1)
        return shared if shared == len(self.ids) or self._can_be_cut(shared) else 0

    def first(self, count: int) -> list[Any]:
        """The layers as they were after `count` ids; the cache itself stays as it is.

        Cheap: the copy shares its memory until one of the two is written to.
        """
        layers = deepcopy(self._layers)
        trim_prompt_cache(layers, len(self.ids) - count)
        return layers

    def size_bytes(self) -> int:
        """Memory that the layers hold."""
        return sum(layer.nbytes for layer in self._layers)

    def drop(self) -> None:
        """Let go of the memory; the cache is of no use afterwards."""
        self.ids = ()
        self._layers = []
        self._chunked = []

    def _can_be_cut(self, count: int) -> bool:
        """Whether the layers still have all that the model, after `count` ids, would look at.

        Chunked ones look back to the beginning of a chunk. `trim` does not mind: it cuts what is there.
        """
        return self._trimmable and all(
            layer.start_position <= count // layer.chunk_size * layer.chunk_size for layer in self._chunked
        )

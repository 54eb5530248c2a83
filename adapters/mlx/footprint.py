"""How much memory a loaded model takes."""

from typing import Any

from turnlog.adapters.mlx.runtime import make_prompt_cache, mx, tree_flatten


def weight_bytes(network: Any) -> int:
    """What the parameters of a loaded network take."""
    return _nbytes(network.parameters())


def kv_bytes_per_token(network: Any) -> int:
    """What a sequence adds for each of its tokens; 0 for a network whose state does not grow."""
    # Room is made for 256 tokens at a time.
    return (_state_bytes(network, tokens=513) - _state_bytes(network, tokens=257)) // 256


def _state_bytes(network: Any, tokens: int) -> int:
    """What a sequence keeps. Nothing is computed: shapes are known before."""
    layers = make_prompt_cache(network)
    network(mx.zeros((1, tokens), dtype=mx.int32), cache=layers)
    return _nbytes([layer.state for layer in layers])


def _nbytes(tree: Any) -> int:
    leaves = dict(tree_flatten(tree)).values()
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, mx.array))

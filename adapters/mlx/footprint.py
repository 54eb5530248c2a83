"""How much memory a model takes: expected from its files before it is loaded, and true afterwards."""

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct

from turnlog.adapters.mlx.runtime import ON_GPU, OPENBLAS, make_prompt_cache, mx, tree_flatten

_MOST_DENSE_PARAMETERS = 500_000_000
_FLOATS = ("F64", "F32", "F16", "BF16")
_FLOAT32_BYTES = 4


def is_best_dense(parameters: int) -> bool:
    """Whether a quantised model of so many weights is computed with dense ones in this process.

    With an OpenBLAS, dense products are some 20 times faster than quantised ones on a CPU; a model stays
    quantised when its dense weights would fill the memory.
    """
    return not ON_GPU and OPENBLAS and parameters <= _MOST_DENSE_PARAMETERS


class _Tensor(Struct, frozen=True):
    """What the header of a safetensors file says of an array in it."""

    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def loaded_bytes(self) -> int:
        """On a CPU, floats of any size become float32."""
        return self.stored_bytes if ON_GPU or self.dtype not in _FLOATS else self.size * _FLOAT32_BYTES


def expected_weight_bytes(folder: Path, config: dict[str, Any]) -> int:
    """What the model in `folder` will take once it is loaded. Only the headers of its weights are read.

    A header that cannot be read counts as what its file takes: what is wrong is for the load to say.
    """
    files = sorted(folder.glob("model*.safetensors"))
    try:
        return _loaded_bytes({name: tensor for file in files for name, tensor in _tensors(file)}, config)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return sum(file.stat().st_size for file in files)


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


def _tensors(path: Path) -> Iterator[tuple[str, _Tensor]]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError(f"{path} is no safetensors file")
        header = json.loads(file.read(length))
    for name, said in header.items():
        if name != "__metadata__":
            begins, ends = said["data_offsets"]
            yield name, _Tensor(said["dtype"], tuple(said["shape"]), ends - begins)


def _loaded_bytes(tensors: dict[str, _Tensor], config: dict[str, Any]) -> int:
    if config.get("tie_word_embeddings"):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("lm_head.")}
    packed = {
        module: tensor.size * _group_size(config, module)
        for name, tensor in tensors.items()
        if (module := name.removesuffix(".scales")) != name
    }
    parameters = sum(packed.get(_module(name), tensors[name].size) for name in tensors if _is_weight(name))
    if not is_best_dense(parameters):
        return sum(tensor.loaded_bytes for tensor in tensors.values())
    # Made dense, a module has no scales and biases; it may have a bias.
    return sum(packed.values()) * _FLOAT32_BYTES + sum(
        tensor.loaded_bytes
        for name, tensor in tensors.items()
        if _module(name) not in packed or not name.endswith((".weight", ".scales", ".biases"))
    )


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _is_weight(name: str) -> bool:
    return name.endswith(".weight")


def _group_size(config: dict[str, Any], module: str) -> int:
    """How many weights share a scale. A module may have a quantisation of its own."""
    said = config.get("quantization") or config["quantization_config"]
    own = said.get(module)
    return int((own if isinstance(own, dict) else said)["group_size"])

"""How much memory a model takes, expected from its files before it is loaded."""

import json
import os
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

_MOST_DENSE_PARAMETERS = 500_000_000
_FLOATS = ("F64", "F32", "F16", "BF16")
_FLOAT32_BYTES = 4


class Machine(NamedTuple):
    """What decides how weights are kept: whether there is a GPU, and whether a CPU has an OpenBLAS."""

    on_gpu: bool
    openblas: bool

    def is_best_dense(self, parameters: int) -> bool:
        """Whether a quantised model of so many weights is computed with dense ones.

        With an OpenBLAS, dense products are some 20 times faster than quantised ones on a CPU; a model stays
        quantised when its dense weights would fill the memory.
        """
        return not self.on_gpu and self.openblas and parameters <= _MOST_DENSE_PARAMETERS

    def loaded_bytes(self, tensor: "_Tensor") -> int:
        """On a CPU, floats of any size become float32."""
        kept = self.on_gpu or tensor.dtype not in _FLOATS
        return tensor.stored_bytes if kept else tensor.size * _FLOAT32_BYTES


def this_machine() -> Machine:
    """What an engine will find here, without loading anything: the linker's cache knows the libraries."""
    if sys.platform == "darwin":
        return Machine(on_gpu=True, openblas=False)
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    beside = any(any(Path(folder).glob("libopenblas.so*")) for folder in folders)
    cache = Path("/etc/ld.so.cache")
    known = beside or (cache.is_file() and b"libopenblas.so" in cache.read_bytes())
    return Machine(on_gpu=False, openblas=known and os.environ.get("MLX_DISABLE_OPENBLAS") != "1")


class _Tensor(Struct, frozen=True):
    """What the header of a safetensors file says of an array in it."""

    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def size(self) -> int:
        return prod(self.shape)


def expected_weight_bytes(folder: Path, config: dict[str, Any], machine: Machine) -> int:
    """What the model in `folder` will take once `machine` has loaded it, by the headers of its weights.

    A header that cannot be read counts as what its file takes: what is wrong is for the load to say.
    """
    files = sorted(folder.glob("model*.safetensors"))
    try:
        tensors = {name: tensor for file in files for name, tensor in _tensors(file)}
        return _loaded_bytes(tensors, config, machine)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return sum(file.stat().st_size for file in files)


def _tensors(path: Path) -> Iterator[tuple[str, _Tensor]]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError(f"{path} is not a safetensors file")
        header = json.loads(file.read(length))
    for name, said in header.items():
        if name != "__metadata__":
            begins, ends = said["data_offsets"]
            yield name, _Tensor(said["dtype"], tuple(said["shape"]), ends - begins)


def _loaded_bytes(tensors: dict[str, _Tensor], config: dict[str, Any], machine: Machine) -> int:
    if config.get("tie_word_embeddings"):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("lm_head.")}
    packed = {
        module: tensor.size * _group_size(config, module)
        for name, tensor in tensors.items()
        if (module := name.removesuffix(".scales")) != name
    }
    parameters = sum(packed.get(_module(name), tensors[name].size) for name in tensors if _is_weight(name))
    if not machine.is_best_dense(parameters):
        return sum(machine.loaded_bytes(tensor) for tensor in tensors.values())
    # Made dense, a module has no scales and biases; it may have a bias.
    return sum(packed.values()) * _FLOAT32_BYTES + sum(
        machine.loaded_bytes(tensor)
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

"""The models that the contestants share."""

import json
from pathlib import Path

from tests.tiny_model import make_tiny_model
from turnlog.adapters.mlx import smollm2 as default_model
from turnlog.adapters.mlx.runtime import dequantize_model, load_model, mx, tree_flatten
from turnlog.app.settings import Settings


def tiny(folder: Path) -> Path:
    """The byte model of the tests, with room for long conversations."""
    return make_tiny_model(folder / "tiny", context_window_tokens=8192)


def smollm2(folder: Path) -> Path:
    """SmolLM2 in float32, which is what turnlog computes with on a CPU with an OpenBLAS."""
    source = default_model.prepare(Settings().cache / "models", lambda _what, _fraction: None)
    path = folder / "smollm2"
    path.mkdir()
    network, config = load_model(source)
    dequantize_model(network)
    network.set_dtype(mx.float32)
    mx.save_safetensors(str(path / "model.safetensors"), dict(tree_flatten(network.parameters())))
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            (path / file.name).write_bytes(file.read_bytes())
    dense = {key: value for key, value in config.items() if not key.startswith("quantization")}
    (path / "config.json").write_text(json.dumps(dense))
    return path

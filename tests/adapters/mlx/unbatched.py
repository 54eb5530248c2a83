"""Tiny random models that cannot be batched, on the tokenizer of the tiny one."""

import json
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten
from mlx_lm.models import afm7, llama4

from tests.tiny_model import make_tiny_model
from turnlog.adapters.mlx.runtime import mx

CHUNK_TOKENS = 32
"""How far three of the four layers of the Llama 4 look back at most: to the last multiple of this."""


def make_tiny_llama4(folder: Path) -> Path:
    """A Llama 4 with a chunk that is shorter than any conversation. A greedy answer never ends by itself."""
    config = _config(make_tiny_model(folder))
    text_config = {
        "model_type": "llama4_text",
        "attention_bias": False,
        "attention_chunk_size": CHUNK_TOKENS,
        "head_dim": 16,
        "hidden_size": 64,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 64,
        "intermediate_size_mlp": 128,
        "max_position_embeddings": config["max_position_embeddings"],
        "num_attention_heads": 4,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 2,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10_000.0,
        "use_qk_norm": True,
        "vocab_size": config["vocab_size"],
    }
    weights = _weights(llama4.Model(llama4.ModelArgs(text_config=text_config, model_type="llama4")))
    # Added tokens come last and are never the likeliest.
    quiet = mx.arange(config["vocab_size"]) >= config["eos_token_id"] - 1
    weights["language_model.lm_head.weight"] *= mx.where(quiet, 0.1, 1.0)[:, None]
    return _write(
        folder,
        {"model_type": "llama4", "eos_token_id": config["eos_token_id"], "text_config": text_config},
        weights,
    )


def make_tiny_afm7(folder: Path) -> Path:
    """An AFM of two layers and two that reuse what the second of them keeps."""
    config = _config(make_tiny_model(folder))
    shape = {
        "model_type": "afm7",
        "vocab_size": config["vocab_size"],
        "hidden_dim": 64,
        "num_layers": 4,
        "num_kv_reuse_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
    }
    weights = _weights(afm7.Model(afm7.ModelArgs(**shape)))
    kept = {key: config[key] for key in ("eos_token_id", "max_position_embeddings")}
    return _write(folder, shape | kept, weights)


def _config(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return read


def _weights(network: Any) -> dict[str, mx.array]:
    """Random ones in place of all that are matrices; the same each time."""
    parameters = dict(tree_flatten(network.parameters()))
    return {
        name: mx.random.normal(weight.shape, key=mx.random.key(seed)) * 0.3 if weight.ndim > 1 else weight
        for seed, (name, weight) in enumerate(sorted(parameters.items()))
    }


def _write(folder: Path, config: dict[str, Any], weights: dict[str, mx.array]) -> Path:
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder

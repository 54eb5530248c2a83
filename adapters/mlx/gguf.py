"""A GGUF file of a Llama model, written as the folder of files that `mlx_lm` loads.

The weights stay as they were quantised. The tokenizer is rebuilt from the file's own vocabulary and merges.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnlog.adapters.mlx.runtime import mx

_CONTROL = 3  # GGUF's token type of control tokens
_GROUP_SIZE = 32  # GGUF's block size of Q4_1 and Q8_0

_MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: Path, folder: Path, progress: Callable[[float], None]) -> None:
    """Write the model in `gguf` into the existing, empty `folder`; `progress` gets fractions up to 1.

    Knows Llama models with 4-bit weights, 8-bit embeddings and a byte-level BPE of the SmolLM kind.
    """
    loaded: Any = mx.load(str(gguf), return_metadata=True)
    tensors, metadata = loaded
    config = _config(metadata)
    weights: dict[str, mx.array] = {}
    for count, (name, tensor) in enumerate(tensors.items(), start=1):
        weights[_weight_name(name)] = _in_mlx_order(name, tensor, config)
        mx.eval(tensor)
        progress(count / len(tensors) * 0.9)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    _write_json(folder / "tokenizer.json", _tokenizer(metadata))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(metadata))
    _write_json(folder / "config.json", config)
    progress(1.0)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    def number(key: str) -> int:
        return int(metadata[key].item())

    def fraction(key: str) -> float:
        # GGUF keeps float32; a few digits give back the number that was meant.
        return float(f"{metadata[key].item():.6g}")

    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": number("llama.embedding_length"),
        "intermediate_size": number("llama.feed_forward_length"),
        "num_hidden_layers": number("llama.block_count"),
        "num_attention_heads": number("llama.attention.head_count"),
        "num_key_value_heads": number("llama.attention.head_count_kv"),
        "rms_norm_eps": fraction("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": fraction("llama.rope.freq_base"),
        "vocab_size": number("llama.vocab_size"),
        "max_position_embeddings": number("llama.context_length"),
        "tie_word_embeddings": True,
        "bos_token_id": number("tokenizer.ggml.bos_token_id"),
        "eos_token_id": number("tokenizer.ggml.eos_token_id"),
        "quantization": {
            "group_size": _GROUP_SIZE,
            "bits": 4,
            "model.embed_tokens": {"group_size": _GROUP_SIZE, "bits": 8},
        },
    }


def _weight_name(name: str) -> str:
    """`blk.3.attn_q.scales` is `model.layers.3.self_attn.q_proj.scales`."""
    *place, module, part = name.split(".")
    layer = f"model.layers.{place[1]}." if place else ""
    return f"{layer}{_MODULES[module]}.{part}"


def _in_mlx_order(name: str, tensor: mx.array, config: dict[str, Any]) -> mx.array:
    """GGUF interleaves the two halves that rotary embedding turns; MLX keeps one after the other."""
    if ".attn_q." in name:
        heads = config["num_attention_heads"]
    elif ".attn_k." in name:
        heads = config["num_key_value_heads"]
    else:
        return tensor
    rows, columns = tensor.shape
    return tensor.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(metadata: dict[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": token, **flags}
            for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind == _CONTROL
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def _tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]

    def token(role: str) -> str:
        return str(tokens[metadata[f"tokenizer.ggml.{role}_token_id"].item()])

    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "unk_token": token("unknown"),
        "pad_token": token("padding"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(metadata["llama.context_length"].item()),
        "chat_template": metadata["tokenizer.chat_template"],
    }

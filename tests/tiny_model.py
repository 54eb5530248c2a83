"""A model folder made in a moment: a random Llama of two layers that reads bytes and answers nonsense.

It is the same whenever it is made, and a greedy answer never ends by itself. Its vocabulary has the markers
of chats, thinking and tool calls.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from turnlog.adapters.mlx.runtime import mx

CONTEXT_WINDOW_TOKENS = 512
CONTROL_TOKENS = ("<|im_start|>", "<|im_end|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# A few merges, so that where a text is cut matters to its ids. `Ċ` is a line's end, `Ġ` a space.
MERGES = (("Ċ", "Ċ"), ("h", "e"), ("Ġ", "t"), ("l", "l"), ("e", "r"), ("Ġt", "he"), ("o", "u"), ("i", "n"))

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# As Qwen3's: tools in the system message, calls between markers, and thoughts shown only since the last
# question. By "<tool_call>" and "tool_call.name" `mlx_lm` knows which of its parsers fits.
AGENT_TEMPLATE = (
    "{%- set ns = namespace(asked=-1) %}"
    "{%- for message in messages %}{% if message.role == 'user' %}{% set ns.asked = loop.index0 %}{% endif %}"
    "{%- endfor %}"
    "{%- if tools %}{{ '<|im_start|>system\\n# Tools' }}"
    "{%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}"
    "{{ '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}"
    "{%- else %}"
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.reasoning_content and loop.index0 > ns.asked %}"
    "{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"
    "{{ message.content.split('</think>')[-1] }}"
    "{%- for tool_call in message.tool_calls or [] %}{% set tool_call = tool_call.function %}"
    "{{ '\\n' if message.content or not loop.first }}"
    """{{ '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}"""
    "{{ tool_call.arguments if tool_call.arguments is string else tool_call.arguments | tojson }}"
    "{{ '}\\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}"
    "{%- endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)
# As DeepSeek-R1's: the prompt itself begins the thinking.
OPENING_TEMPLATE = (
    AGENT_TEMPLATE.removesuffix("{% endif %}")
    + "{% if enable_thinking %}{{ '<think>\\n' }}{% endif %}{% endif %}"
)


def make_tiny_model(
    folder: Path, chat_template: str = CHAT_TEMPLATE, *, context_window_tokens: int = CONTEXT_WINDOW_TOKENS
) -> Path:
    """Write the model into `folder`, which is made if need be, and give it back."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    config: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": context_window_tokens,
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
    }
    mx.save_safetensors(str(folder / "model.safetensors"), _weights(config))
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "clean_up_tokenization_spaces": False,
            "chat_template": chat_template,
        },
    )
    _write_json(folder / "config.json", config)
    return folder


def _tokenizer() -> Tokenizer:
    pieces = [*sorted(ByteLevel.alphabet()), *(left + right for left, right in MERGES)]
    tokenizer = Tokenizer(
        BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=list(MERGES))
    )
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS]
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in MARKERS])
    return tokenizer


def _weights(config: dict[str, Any]) -> dict[str, mx.array]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden * config["num_key_value_heads"] // config["num_attention_heads"]
    layer = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes = {"embed_tokens": (config["vocab_size"], hidden), "norm": (hidden,)}
    for number in range(config["num_hidden_layers"]):
        shapes |= {f"layers.{number}.{name}": shape for name, shape in layer.items()}
    weights = {
        f"model.{name}.weight": mx.ones(shape)
        if "norm" in name
        else mx.random.normal(shape, key=mx.random.key(seed)) * 0.3
        for seed, (name, shape) in enumerate(shapes.items())
    }
    # Added tokens come last and are never the likeliest: a greedy answer runs until its budget is used up.
    quiet = mx.arange(config["vocab_size"]) >= config["eos_token_id"] - 1
    weights["model.embed_tokens.weight"] *= mx.where(quiet, 0.1, 1.0)[:, None]
    return weights


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")

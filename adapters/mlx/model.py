"""A model folder: checked, loaded and fingerprinted. No code that lies in a folder is ever run."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from adapters.mlx.runtime import (
    ON_GPU,
    OPENBLAS,
    dequantize_model,
    load_model,
    load_tokenizer,
    make_prompt_cache,
    mx,
)
from domain.errors import EngineError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
_MOST_DENSE_PARAMETERS = 500_000_000


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to compute with: all its arrays are evaluated, so any one thread may take it over.

    `network` is an `mlx.nn.Module`, `tokenizer` a `TokenizerWrapper` of `mlx_lm`; both are untyped.
    """

    network: Any
    tokenizer: Any
    model_fingerprint: str
    tokenizer_fingerprint: str
    context_window_tokens: int | None


def load(folder: Path) -> LoadedModel:
    """Load the MLX model in `folder`.

    Raises:
        EngineError: the folder is missing, incomplete or broken, wants code of its own to be run, has no
            chat template, or is of a kind that cannot be batched.
    """
    config = _checked(folder)
    try:
        network, _ = load_model(folder)
        tokenizer = load_tokenizer(  # type: ignore[no-untyped-call]
            # Said outright: left open, transformers would ask on the terminal.
            folder,
            {"trust_remote_code": False},
            eos_token_ids=config.get("eos_token_id"),
        )
    except Exception as error:
        # Whatever a broken file makes the loaders raise, the operator needs to know which folder it was.
        raise EngineError(f"The model in {folder} cannot be loaded: {error}") from error
    if not tokenizer.is_fast:
        raise EngineError(f"The model in {folder} has no tokenizer.json; only such tokenizers are supported.")
    if not tokenizer.has_chat_template:
        raise EngineError(
            f"The model in {folder} has no chat template in tokenizer_config.json; use a chat model."
        )
    if not all(hasattr(layer, "merge") for layer in make_prompt_cache(network)):
        raise EngineError(f"The model in {folder} keeps a cache that mlx_lm cannot batch; use another model.")
    if not ON_GPU:
        _fit_to_cpu(network)
    _evaluate(network)
    return LoadedModel(
        network=network,
        tokenizer=tokenizer,
        model_fingerprint=model_fingerprint(folder),
        tokenizer_fingerprint=tokenizer_fingerprint(folder),
        context_window_tokens=_context_window(config, tokenizer.model_max_length),
    )


def _checked(folder: Path) -> dict[str, Any]:
    """The folder's configuration, with the end tokens that its generation_config.json may name."""
    if not folder.is_dir():
        raise EngineError(f"There is no model folder at {folder}.")
    if not (folder / "config.json").is_file():
        raise EngineError(f"{folder} is not a model folder: config.json is expected there.")
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise EngineError(f"The model folder {folder} has no tokenizer: tokenizer.json is expected there.")
    if not any(folder.glob("model*.safetensors")):
        raise EngineError(f"The model folder {folder} has no weights: model*.safetensors is expected there.")
    config = _read_json(folder / "config.json")
    for name in ("model_file", "auto_map"):
        if name in config:
            raise EngineError(
                f"The model in {folder} wants code of its own to be run ('{name}' in config.json); "
                "turnlog never does that."
            )
    if (folder / "generation_config.json").is_file():
        ends = _read_json(folder / "generation_config.json").get("eos_token_id")
        return config if ends is None else {**config, "eos_token_id": ends}
    return config


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EngineError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise EngineError(f"{path} must hold a JSON object.")
    return content


def _fit_to_cpu(network: Any) -> None:
    """Put the weights into the form that this CPU computes with fastest.

    Half precision is emulated, so everything is float32. With an OpenBLAS, dense products are some 20
    times faster than quantised ones; a model stays quantised when its dense weights would fill the memory.
    """
    if OPENBLAS and _parameter_count(network) <= _MOST_DENSE_PARAMETERS:
        dequantize_model(network)
    network.set_dtype(mx.float32)


def _parameter_count(network: Any) -> int:
    """How many weights there are; of packed ones, each counts."""

    def count(module: Any) -> int:
        packed = 32 // module.bits if hasattr(module, "bits") else 1
        return int(module.weight.size) * packed

    return sum(count(module) for _, module in network.named_modules() if "weight" in module)


def _evaluate(network: Any) -> None:
    """Compute every array now: one left lazy belongs to this thread and cannot be read by another.

    Also what is no parameter, such as the frequencies of a scaled rotary embedding.
    """
    mx.eval(network.parameters())
    mx.eval(
        [value for module in network.modules() for value in module.values() if isinstance(value, mx.array)]
    )


def _context_window(config: dict[str, Any], tokenizer_limit: int) -> int | None:
    """The smaller of what model and tokenizer name. Tokenizers say 10**30 when they do not know."""
    named = (
        config.get("max_position_embeddings"),
        config.get("text_config", {}).get("max_position_embeddings"),
        tokenizer_limit,
    )
    return min((int(limit) for limit in named if limit and limit < 2**31), default=None)


# ── fingerprints ──────────────────────────────────────────────────────────────────────────────────

_BLOCK_BYTES = 1 << 16
_SAMPLED_BLOCKS = 64
_TOKENIZER_PATTERNS = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.tiktoken",
)


def model_fingerprint(folder: Path) -> str:
    """SHA-256 in hex over the configuration and the weights, quick for weights of any size.

    Of each weight file it reads the size and 65 blocks of 64 KiB, spread evenly from the header, with its
    names and shapes, to the end. Another model, another quantisation or another training gives another
    fingerprint; a single changed weight in a big file may not.
    """
    seen = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("model*.safetensors")):
        size_bytes = path.stat().st_size
        seen.update(f"\n{path.name} {size_bytes}\n".encode())
        with path.open("rb") as file:
            for block in _sampled(file, size_bytes):
                seen.update(block)
    return seen.hexdigest()


def _sampled(file: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    last = max(0, size_bytes - _BLOCK_BYTES)
    for start in sorted({last * step // _SAMPLED_BLOCKS for step in range(_SAMPLED_BLOCKS + 1)}):
        file.seek(start)
        yield file.read(_BLOCK_BYTES)


def tokenizer_fingerprint(folder: Path) -> str:
    """SHA-256 in hex over every file that says how text becomes ids, the chat template among them."""
    names = {path for pattern in _TOKENIZER_PATTERNS for path in folder.glob(pattern) if path.is_file()}
    seen = hashlib.sha256()
    for path in sorted(names):
        seen.update(f"\n{path.name} {path.stat().st_size}\n".encode())
        seen.update(path.read_bytes())
    return seen.hexdigest()

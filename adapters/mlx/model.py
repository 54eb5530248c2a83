"""A model folder: checked and loaded. No code that lies in a folder is ever run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnlog.adapters.mlx.fingerprint import FileHashes, model_fingerprint, tokenizer_fingerprint
from turnlog.adapters.mlx.footprint import kv_bytes_per_token, weight_bytes
from turnlog.adapters.mlx.runtime import (
    ON_GPU,
    OPENBLAS,
    dequantize_model,
    load_model,
    load_tokenizer,
    make_prompt_cache,
    mx,
)
from turnlog.adapters.model_folder.config import checked_config
from turnlog.adapters.model_folder.weights import Machine
from turnlog.domain.errors import EngineError

# Its last layers take the place of a token from the length of the cache; in a batch that counts the padding.
_MISPLACED_IN_BATCHES = ("afm7",)


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to compute with: all its arrays are evaluated, so any one thread may take it over.

    `network` is an `mlx.nn.Module`, `tokenizer` a `TokenizerWrapper` of `mlx_lm`; both are untyped.
    `batches` says whether `mlx_lm` computes several sequences of it together; else they take turns.
    """

    network: Any
    tokenizer: Any
    model_fingerprint: str
    tokenizer_fingerprint: str
    context_window_tokens: int | None
    weight_bytes: int
    kv_bytes_per_token: int
    batches: bool


def load(folder: Path, hashes: FileHashes | None = None) -> LoadedModel:
    """Load the MLX model in `folder`.

    Args:
        hashes: of files, for the fingerprints; left out, all files are read.

    Raises:
        EngineError: the folder is missing, incomplete or broken, wants code of its own to be run, or has no
            chat template.
    """
    config = checked_config(folder)
    try:
        network, _ = load_model(folder)
    except Exception as error:
        # Whatever a broken file makes the loaders raise, the operator needs to know which folder it was.
        raise EngineError(f"The model in {folder} cannot be loaded: {error}") from error
    tokenizer = load_tokenizer_of(folder)
    if not ON_GPU:
        _fit_to_cpu(network)
    _evaluate(network)
    hashes = hashes or FileHashes()
    return LoadedModel(
        network=network,
        tokenizer=tokenizer,
        model_fingerprint=model_fingerprint(folder, hashes),
        tokenizer_fingerprint=tokenizer_fingerprint(folder, hashes),
        context_window_tokens=_context_window(config, tokenizer.model_max_length),
        weight_bytes=weight_bytes(network),
        kv_bytes_per_token=kv_bytes_per_token(network),
        batches=_batches(network, config["model_type"]),
    )


def load_tokenizer_of(folder: Path) -> Any:
    """The `TokenizerWrapper` of `mlx_lm` for the model in `folder`.

    Raises:
        EngineError: it cannot be loaded, or has no chat template.
    """
    config = checked_config(folder)
    try:
        tokenizer = load_tokenizer(  # type: ignore[no-untyped-call]
            # Said outright: left open, transformers would ask on the terminal.
            folder,
            {"trust_remote_code": False},
            eos_token_ids=config.get("eos_token_id"),
        )
    except Exception as error:
        raise EngineError(f"The model in {folder} cannot be loaded: {error}") from error
    if not tokenizer.is_fast:
        raise EngineError(f"The model in {folder} has no tokenizer.json; only such tokenizers are supported.")
    if not tokenizer.has_chat_template:
        raise EngineError(
            f"The model in {folder} has no chat template in tokenizer_config.json; use a chat model."
        )
    return tokenizer


def _batches(network: Any, model_type: str) -> bool:
    """Whether several sequences can be computed together, and each is then what it is alone."""
    mergeable = all(hasattr(layer, "merge") for layer in make_prompt_cache(network))
    return mergeable and model_type not in _MISPLACED_IN_BATCHES


def _fit_to_cpu(network: Any) -> None:
    """Put the weights into the form that this CPU computes with fastest.

    Half precision is emulated, so everything is float32.
    """
    if Machine(ON_GPU, OPENBLAS).is_best_dense(_parameter_count(network)):
        dequantize_model(network)
    network.set_dtype(mx.float32)


def _parameter_count(network: Any) -> int:
    """How many weights there are; of packed ones, each counts."""

    def count(module: Any) -> int:
        if hasattr(module, "bits"):
            return int(module.scales.size) * int(module.group_size)
        return int(module.weight.size)

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

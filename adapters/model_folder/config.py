"""The configuration of a model folder, checked. No code that lies in a folder is ever run."""

import json
import logging
from pathlib import Path
from typing import Any

import msgspec

from turnlog.domain.defaults import DEFAULTABLE, ModelDefaults, read_default
from turnlog.domain.errors import EngineError

_log = logging.getLogger("turnlog")

_NAMES = {"max_new_tokens": "max_output_tokens"}
"""What the file calls otherwise."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")


def checked_config(folder: Path) -> dict[str, Any]:
    """The folder's configuration, with the end tokens that its generation_config.json may name.

    Raises:
        EngineError: the folder is missing or incomplete, or wants code of its own to be run.
    """
    if not folder.is_dir():
        raise EngineError(f"No model folder at {folder}.")
    if not (folder / "config.json").is_file():
        raise EngineError(f"{folder} is not a model folder: config.json is missing.")
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise EngineError(f"The model folder {folder} has no tokenizer: tokenizer.json is missing.")
    if not any(folder.glob("model*.safetensors")):
        raise EngineError(f"The model folder {folder} has no weights: model*.safetensors is missing.")
    config = _read_json(folder / "config.json")
    for name in ("model_file", "auto_map"):
        if name in config:
            raise EngineError(
                f"The model in {folder} requires custom code ('{name}' in config.json), "
                "which turnlog never runs."
            )
    if (folder / "generation_config.json").is_file():
        ends = _read_json(folder / "generation_config.json").get("eos_token_id")
        return config if ends is None else {**config, "eos_token_id": ends}
    return config


def sampling_defaults(folder: Path) -> ModelDefaults:
    """What the folder's generation_config.json says; a value that no request could have is passed over."""
    path = folder / "generation_config.json"
    found = ModelDefaults()
    for key, value in (_read_json(path) if path.is_file() else {}).items():
        name = _NAMES.get(key, key)
        if name in DEFAULTABLE and value is not None:
            try:
                found = read_default(name, value).over(found)
            except msgspec.ValidationError as error:
                _log.warning("[models] %s: ignoring %s: %s", path, key, error)
    return found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EngineError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise EngineError(f"{path} must hold a JSON object.")
    return content

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_model import CONTEXT_WINDOW_TOKENS, make_tiny_model
from turnlog.adapters.mlx.fingerprint import FileHashes, model_fingerprint, tokenizer_fingerprint
from turnlog.adapters.mlx.model import load, load_tokenizer_of
from turnlog.domain.errors import EngineError


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def test_a_model_knows_its_window_and_its_fingerprints(tiny_folder: Path) -> None:
    model = load(tiny_folder)

    assert model.context_window_tokens == CONTEXT_WINDOW_TOKENS
    assert model.model_fingerprint == model_fingerprint(tiny_folder, FileHashes())
    assert model.tokenizer_fingerprint == tokenizer_fingerprint(tiny_folder, FileHashes())


BROKEN: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: remove(folder, "config.json"), "config.json is missing"),
    (lambda folder: remove(folder, "model.safetensors"), r"model\*\.safetensors is missing"),
    (
        lambda folder: remove(folder, "tokenizer.json", "tokenizer_config.json"),
        "tokenizer.json is missing",
    ),
    (lambda folder: (folder / "config.json").write_text("{"), "is not valid JSON"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"nothing"), "cannot be loaded"),
    (lambda folder: change_config(folder, hidden_size=32), "cannot be loaded"),
    (lambda folder: change_config(folder, model_type="unheard_of"), "cannot be loaded"),
    (lambda folder: change_config(folder, model_file="evil.py"), "turnlog never runs"),
    (lambda folder: change_config(folder, auto_map={"AutoModel": "evil.Model"}), "turnlog never runs"),
    (lambda folder: (folder / "tokenizer_config.json").write_text("{}"), "has no chat template"),
]


@pytest.mark.parametrize(("break_it", "complaint"), BROKEN)
def test_a_broken_folder_is_named_with_what_is_wrong(
    tmp_path: Path, break_it: Callable[[Path], object], complaint: str
) -> None:
    folder = make_tiny_model(tmp_path / "tiny")

    break_it(folder)

    with pytest.raises(EngineError, match=complaint) as refused:
        load(folder)
    assert str(folder) in str(refused.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"No model folder at .*nowhere"):
        load(tmp_path / "nowhere")


def test_end_tokens_that_only_generation_config_names_end_an_answer(tmp_path: Path) -> None:
    """T2-32: several models name the end of a turn nowhere else."""
    folder = make_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    end = config.pop("eos_token_id")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 5]}))

    assert load_tokenizer_of(folder).eos_token_ids == {end, 5}

"""Fingerprints are of content, and files are read no more often than needed."""

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.tiny_model import CHAT_TEMPLATE, make_tiny_model
from turnlog.adapters.mlx.fingerprint import FileHashes, model_fingerprint, tokenizer_fingerprint


def sha(text: str) -> str:
    """The hash of a file with this text."""
    return sha256(text.encode()).hexdigest()


def flip_a_weight(folder: Path) -> None:
    """Change one bit in the middle; names, shapes and size stay."""
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[len(weights) // 2] ^= 1
    (folder / "model.safetensors").write_bytes(weights)


def change_tokenizer(folder: Path) -> None:
    """Add white space to the tokenizer's file."""
    path = folder / "tokenizer.json"
    path.write_text(path.read_text() + " ")


CHANGES: list[tuple[str, Callable[[Path], object], bool, bool]] = [
    ("nothing", lambda _: None, False, False),
    ("what is no part of it", lambda folder: (folder / "README.md").write_text("Hi."), False, False),
    ("a weight", flip_a_weight, True, False),
    ("more weights", lambda folder: (folder / "adapter.safetensors").write_bytes(b"x"), True, False),
    (
        "the configuration",
        lambda folder: (folder / "config.json").write_text((folder / "config.json").read_text() + " "),
        True,
        False,
    ),
    ("the end tokens", lambda folder: (folder / "generation_config.json").write_text("{}"), True, False),
    ("the tokenizer", change_tokenizer, True, True),
    ("the template", lambda folder: make_tiny_model(folder, CHAT_TEMPLATE + " "), True, True),
]


@pytest.mark.parametrize(
    ("change", "changes_model", "changes_tokenizer"),
    [case[1:] for case in CHANGES],
    ids=[case[0] for case in CHANGES],
)
def test_fingerprints_change_with_what_they_stand_for(
    tmp_path: Path, change: Callable[[Path], object], changes_model: bool, changes_tokenizer: bool
) -> None:
    one, other = make_tiny_model(tmp_path / "one"), make_tiny_model(tmp_path / "other")
    hashes = FileHashes(tmp_path / "cache")

    change(other)

    assert (model_fingerprint(one, hashes) != model_fingerprint(other, hashes)) is changes_model
    assert (tokenizer_fingerprint(one, hashes) != tokenizer_fingerprint(other, hashes)) is changes_tokenizer


def test_a_file_is_read_once_until_its_state_changes(tmp_path: Path) -> None:
    path, hashes = tmp_path / "weights", FileHashes(tmp_path / "cache")
    path.write_text("one")
    [first] = hashes.of([path])
    then = path.stat()

    path.write_text("two")
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    [unnoticed] = FileHashes(tmp_path / "cache").of([path])
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns + 1))
    [later] = hashes.of([path])

    path.write_text("three")
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns + 1))
    [longer] = hashes.of([path])

    replacement = tmp_path / "replacement"
    replacement.write_text("THREE")
    os.utime(replacement, ns=(then.st_atime_ns, then.st_mtime_ns + 1))
    replacement.replace(path)
    [replaced] = hashes.of([path])

    assert (first, unnoticed) == (sha("one"), sha("one"))
    assert (later, longer, replaced) == (sha("two"), sha("three"), sha("THREE"))


def test_two_names_of_one_file_have_one_hash(tmp_path: Path) -> None:
    path, link = tmp_path / "weights", tmp_path / "link"
    path.write_text("one")
    link.symlink_to(path)

    hashes = FileHashes(tmp_path / "cache").of([link, path])

    assert hashes == [sha("one")] * 2
    assert list(json.loads((tmp_path / "cache" / "file-hashes.json").read_bytes())) == [str(path)]


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("gone", "kept", "new")]
    for path in paths:
        path.write_text(path.name)
    gone, kept, new = paths
    hashes = FileHashes(tmp_path / "cache")
    hashes.of([gone, kept])

    gone.unlink()
    hashes.of([new])

    assert list(json.loads((tmp_path / "cache" / "file-hashes.json").read_bytes())) == [str(kept), str(new)]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["file-hashes.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"/weights": 1}', b'{"/weights": [1, 2, 3]}']
)
def test_a_broken_cache_is_computed_anew(tmp_path: Path, content: bytes) -> None:
    path, cache = tmp_path / "weights", tmp_path / "cache"
    path.write_text("one")
    cache.mkdir()
    (cache / "file-hashes.json").write_bytes(content)

    assert FileHashes(cache).of([path]) == [sha("one")]
    assert list(json.loads((cache / "file-hashes.json").read_bytes())) == [str(path)]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("one")
    hashes = FileHashes(path / "below a file")

    assert hashes.of([path]) == [sha("one")]

    path.write_text("two")
    assert hashes.of([path]) == [sha("two")]

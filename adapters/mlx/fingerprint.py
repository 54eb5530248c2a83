"""What a model is, by the content of its files. Hashes are kept, as big files take seconds to read."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import NamedTuple

import msgspec

_TOKENIZER_PATTERNS = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.tiktoken",
)
_MODEL_PATTERNS = ("config.json", "generation_config.json", "*.safetensors", *_TOKENIZER_PATTERNS)


class _Entry(NamedTuple):
    """The hash of a file in the state it had then."""

    size_bytes: int
    mtime_ns: int
    inode: int
    sha256: str


class FileHashes:
    """SHA-256 of files, kept below a cache folder so that many gigabytes are read once and not at each start.

    A hash counts as long as path, size, time of change and inode are what they were. Any thread, and any
    number of processes: the last to write wins, and what another wrote meanwhile is only computed again.

    Args:
        cache_dir: where to keep them; None for nowhere.
    """

    def __init__(self, cache_dir: Path | None = None) -> None:
        self._path = cache_dir / "file-hashes.json" if cache_dir else None

    def of(self, paths: Iterable[Path]) -> list[str]:
        """The hashes of these files, in hex and in their order."""
        files = [path.resolve() for path in paths]
        known = self._read()
        new = {str(path): entry for path in files if (entry := _hashed(path, known))}
        if new:
            self._write({name: entry for name, entry in known.items() if Path(name).exists()} | new)
        return [(known | new)[str(path)].sha256 for path in files]

    def _read(self) -> dict[str, _Entry]:
        """What is known; nothing if the file is missing or is not what `_write` wrote."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Entry]) if self._path else {}
        except (OSError, msgspec.MsgspecError):
            return {}

    def _write(self, entries: dict[str, _Entry]) -> None:
        if self._path is None:
            return
        half_done = self._path.with_name(f".{self._path.name}-{os.getpid()}-{get_ident()}")
        # A folder that cannot be written to costs time at the next start, and nothing else.
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                half_done.write_bytes(msgspec.json.encode(entries))
                half_done.replace(self._path)
            finally:
                half_done.unlink(missing_ok=True)


def _hashed(path: Path, known: dict[str, _Entry]) -> _Entry | None:
    """A new entry for a file; None if what is known of it is still so."""
    # Before it is read: a change meanwhile is then seen the next time.
    status = path.stat()
    state = (status.st_size, status.st_mtime_ns, status.st_ino)
    entry = known.get(str(path))
    if entry and entry[:3] == state:
        return None
    with path.open("rb") as file:
        return _Entry(*state, hashlib.file_digest(file, "sha256").hexdigest())


def model_fingerprint(folder: Path, hashes: FileHashes) -> str:
    """Over configuration, tokenizer, chat template and weights: whatever can change an answer.

    The first time all of the weights are read, about a second per gigabyte.
    """
    return _fingerprint(folder, _MODEL_PATTERNS, hashes)


def tokenizer_fingerprint(folder: Path, hashes: FileHashes) -> str:
    """Over every file that says how text becomes ids, the chat template among them."""
    return _fingerprint(folder, _TOKENIZER_PATTERNS, hashes)


def _fingerprint(folder: Path, patterns: Iterable[str], hashes: FileHashes) -> str:
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    seen = hashlib.sha256()
    for path, sha256 in zip(paths, hashes.of(paths), strict=True):
        seen.update(f"{path.name} {sha256}\n".encode())
    return seen.hexdigest()

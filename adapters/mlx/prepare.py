"""Makes the folder of the default model for `engine_process.default_model`, and tells it in JSON lines."""

import os
import sys
from pathlib import Path

import msgspec

from turnlog.adapters.engine_process.default_model import Told
from turnlog.adapters.mlx import smollm2
from turnlog.domain.errors import EngineError


def main() -> None:
    """Make it below the folder that is named by the argument."""
    # Whatever libraries print is for people.
    lines = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def tell(told: Told) -> None:
        lines.write(msgspec.json.encode(told) + b"\n")

    try:
        smollm2.prepare(Path(sys.argv[1]), lambda what, fraction: tell(Told(what, fraction)))
    except EngineError as error:
        tell(Told(error=error.message))


if __name__ == "__main__":
    main()

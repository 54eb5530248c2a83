"""Fuzzes one target by coverage for some seconds, or each in turn. The exit code is not 0 if one breaks.

python -m tests.fuzz [SECONDS [TARGET [FILE]]]
"""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

TARGETS = {
    "tags": ["turnlog.domain.markers", "turnlog.domain.tags"],
    "output_parser": [
        "turnlog.adapters.mlx.output_parser",
        "turnlog.domain.markers",
        "turnlog.adapters.mlx.toolparse",
    ],
    "toolparse": ["turnlog.adapters.mlx.toolparse", "mlx_lm.tool_parsers"],
    "schemas": ["turnlog.domain.schemas"],
    "requests": ["turnlog.adapters.openai", "turnlog.domain.tools"],
}
"""The targets, and the modules whose branches the fuzzer watches."""

FOUND = Path(__file__).parent / "found"
"""Where an input that breaks a target is kept. Run it again by naming the file."""


def command(target: str, seconds: int) -> list[str]:
    """How one target is fuzzed: in a process of its own, because atheris ends the process."""
    return [sys.executable, "-m", "tests.fuzz", str(seconds), target]


def fuzz(target: str, seconds: int, *inputs: str) -> None:
    """Fuzz in this process; does not return."""
    import atheris

    with atheris.instrument_imports(include=TARGETS[target]):
        module: Any = import_module(f"tests.fuzz.targets.{target}")
    FOUND.mkdir(exist_ok=True)
    limits = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={FOUND}/{target}-", *inputs], module.one)
    atheris.Fuzz()


def main() -> int:
    """Run by the arguments of the command line."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    if len(sys.argv) > 2:
        fuzz(sys.argv[2], seconds, *sys.argv[3:])
    codes = [subprocess.run(command(target, seconds), check=False).returncode for target in TARGETS]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())

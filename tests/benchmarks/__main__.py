"""Measures and prints tables: all parts, or those that are named (docs/benchmarks.md)."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.benchmarks import cancelled, compared, crashes, loops, memory, models, own, stall
from turnlog.adapters.mlx.runtime import OPENBLAS, slow_because

_BLAS = "" if sys.platform != "linux" else ", with OpenBLAS" if OPENBLAS else ", without OpenBLAS"

Part = Callable[[Path, int], list[Table]]


def _own(_folder: Path, _runs: int) -> list[Table]:
    return [own.table()]


# SmolLM2 has a token for each word, the byte model about one for each letter.
_TINY = compared.Task(f"tiny{_BLAS}", tokens=64, long_words=220)
_SMOLLM2 = compared.Task(f"SmolLM2{_BLAS}", tokens=32, long_words=950)
# Else it would take hours.
_SLOW_SMOLLM2 = _SMOLLM2._replace(tokens=8, streams=(1, 2, 4))


def _tiny(folder: Path, runs: int) -> list[Table]:
    return asyncio.run(compared.tables(_TINY, models.tiny(folder), folder, compared.SERVERS, runs))


def _smollm2(folder: Path, runs: int) -> list[Table]:
    task = _SLOW_SMOLLM2 if slow_because() else _SMOLLM2
    return asyncio.run(compared.tables(task, models.smollm2(folder), folder, compared.SERVERS, runs))


def _engine(folder: Path, runs: int) -> list[Table]:
    return asyncio.run(compared.tables(_TINY, models.tiny(folder), folder, compared.IN_PROCESS, runs))


def _memory(folder: Path, runs: int) -> list[Table]:
    turns = 1_000 if runs > 1 else 100
    return [memory.table("SmolLM2", models.smollm2(folder), folder, turns)]


def _cancelled(folder: Path, runs: int) -> list[Table]:
    return [cancelled.table("SmolLM2", models.smollm2(folder), runs)]


def _stall(folder: Path, runs: int) -> list[Table]:
    return stall.tables(models.tiny(folder), folder, 30.0 if runs > 1 else 5.0)


def _crashes(folder: Path, runs: int) -> list[Table]:
    kills, freezes = (50, 20) if runs > 1 else (5, 2)
    return [crashes.table(models.tiny(folder), folder, kills=kills, freezes=freezes)]


def _loops(folder: Path, runs: int) -> list[Table]:
    return [loops.table(folder, runs)]


PARTS: dict[str, Part] = {
    "own": _own,
    "tiny": _tiny,
    "smollm2": _smollm2,
    "engine": _engine,
    "cancelled": _cancelled,
    "memory": _memory,
    "stall": _stall,
    "crashes": _crashes,
    "loops": _loops,
}


@click.command()
@click.option("--quick", is_flag=True, help="One run in place of five, after one that warms up.")
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
def main(parts: tuple[str, ...], quick: bool) -> None:
    """Measure PARTS, or all of them."""
    console = Console(width=120)
    for part in parts or PARTS:
        if (load := os.getloadavg()[0]) > 1:
            console.print(f"The load is {load:.1f}: other work is measured too.", style="yellow")
        with TemporaryDirectory() as folder:
            for table in PARTS[part](Path(folder), 1 if quick else 5):
                console.print(table)
                console.print()


if __name__ == "__main__":
    main()

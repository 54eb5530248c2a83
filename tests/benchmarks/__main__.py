"""Measures and prints tables: all parts, or those that are named (docs/benchmarks.md)."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.benchmarks import compared, models, own

Part = Callable[[Path, int], list[Table]]


def _own(_folder: Path, _runs: int) -> list[Table]:
    return [own.table()]


def _tiny(folder: Path, runs: int) -> list[Table]:
    return asyncio.run(
        compared.tables("tiny", models.tiny(folder), folder, compared.SERVERS, runs, tokens=64)
    )


def _smollm2(folder: Path, runs: int) -> list[Table]:
    model = models.smollm2(folder)
    return asyncio.run(compared.tables("SmolLM2", model, folder, compared.SERVERS, runs, tokens=32))


def _engine(folder: Path, runs: int) -> list[Table]:
    model = models.tiny(folder)
    return asyncio.run(compared.tables("tiny", model, folder, compared.IN_PROCESS, runs, tokens=64))


PARTS: dict[str, Part] = {"own": _own, "tiny": _tiny, "smollm2": _smollm2, "engine": _engine}


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

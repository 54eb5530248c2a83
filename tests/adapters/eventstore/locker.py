"""A real second process that keeps a store's file locked."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[None]:
    """No one else can write the file meanwhile."""
    with run(_LOCKER, path):
        yield


@contextmanager
def run(program: str, *arguments: object) -> Iterator[str]:
    """Run a Python program that prints a line and waits for the end of its input; the line."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait()

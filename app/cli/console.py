"""Where the commands print, and how they refuse."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from turnlog.app.cli.printing import printable
from turnlog.app.settings import SettingsError
from turnlog.domain.errors import ResponsesError

EXIT_REFUSED = 2
"""Something about the call or its dependencies is wrong, and the one line on stderr says what."""

# In a file or a pipe there is room; a table is cut to the width of a terminal only.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
out = Console(soft_wrap=True, width=_WIDTH, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


# What JSON may hold as it is, and a terminal may act on: controls, marks of direction, ends of lines.
_ACTIVE = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def print_json(*objects: Any) -> None:
    """One object a line, in which nothing can move the cursor or turn the reading order."""
    for each in objects:
        text = msgspec.json.encode(each).decode()
        click.echo(_ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode())


def fail(message: str) -> NoReturn:
    """One clear line, and the exit code for it."""
    err.print(f"[bold red]turnlog:[/] {escape(printable(message))}")
    sys.exit(EXIT_REFUSED)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what the service refuses into one line."""
    try:
        yield
    except (SettingsError, ResponsesError) as error:
        fail(str(error))


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A bar that shows what is being prepared, on a terminal; plain lines elsewhere."""
    # Late, as most commands show none.
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=err, transient=True
    )
    task = bar.add_task("preparing", total=1.0)
    told: set[str] = set()

    def progress(what: str, done: float) -> None:
        if err.is_terminal:
            bar.start()
            bar.update(task, description=what, completed=done)
        elif what not in told:
            told.add(what)
            err.print(f"{what} …")

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()

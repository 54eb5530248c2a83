"""What the commands share: where they print, how they refuse, which file they read."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.markup import escape

from turnlog.app.settings import Settings, SettingsError, ignored_variables, load_settings
from turnlog.domain.errors import ResponsesError

EXIT_REFUSED = 2
"""Something about the call or its surroundings is wrong, and the one line on stderr says what."""

# In a file or a pipe there is room; a table is cut to the width of a terminal only.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
out = Console(soft_wrap=True, width=_WIDTH)
err = Console(stderr=True, soft_wrap=True)


def fail(message: str) -> NoReturn:
    """One clear line, and the exit code for it."""
    err.print(f"[bold red]turnlog:[/] {escape(message)}", highlight=False)
    sys.exit(EXIT_REFUSED)


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what the service refuses into one line."""
    try:
        yield
    except (SettingsError, ResponsesError) as error:
        fail(str(error))


db_option = click.option(
    "--db",
    metavar="PATH",
    help="The file that holds the log (default: in the user's data directory); :memory: keeps nothing.",
)


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
            err.print(f"{what} …", highlight=False)

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()


def settings(**options: Any) -> Settings:
    """The settings of a command that logs nothing; what has no effect is said on stderr.

    Raises:
        SettingsError: a value cannot be read, or a name is misspelt.
    """
    read = load_settings(os.environ, options)
    for sentence in ignored_variables(os.environ):
        err.print(f"[yellow]turnlog:[/] {escape(sentence)}", highlight=False)
    return read


def database(option: str | None) -> Path:
    """The log that a reading command reads."""
    return settings(db=option).db

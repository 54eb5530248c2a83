"""Options that several commands have."""

import os
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from turnlog.app.cli.console import err
from turnlog.app.settings import Settings, ignored_variables, load_settings

db_option = click.option(
    "--db",
    metavar="PATH",
    help="Log file (default: TURNLOG_DB, else in the user's data directory); :memory: keeps nothing.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")


def settings(**options: Any) -> Settings:
    """The settings of a command that logs nothing; what has no effect is said on stderr.

    Raises:
        SettingsError: a value cannot be read, or a name is misspelt.
    """
    read = load_settings(os.environ, options)
    for sentence in ignored_variables(os.environ):
        err.print(f"[yellow]turnlog:[/] {escape(sentence)}")
    return read


def database(option: str | None) -> Path:
    """The file that `--db` or else the settings name."""
    return settings(db=option).db

"""Options that several commands have."""

import os
from pathlib import Path

import click

from turnlog.app.settings import load_settings

db_option = click.option(
    "--db",
    metavar="PATH",
    help="The file that holds the log (default: in the user's data directory); :memory: keeps nothing.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def database(option: str | None) -> Path:
    """The file that `--db` or else the settings name."""
    return load_settings(os.environ, {"db": option}).db

"""`turnlog models`: the models that turnlog can serve."""

import os

import click

from app.bootstrap import pull_default_model
from app.cli.common import out, progress_bar, refusing
from app.settings import load_settings


@click.group()
def models() -> None:
    """The models that turnlog can serve."""


@models.command("pull")
@click.argument("name", type=click.Choice(["smollm2"]))
def pull_model(name: str) -> None:
    """Fetch a model and turn it into an MLX model folder, once."""
    with refusing(), progress_bar() as progress:
        folder = pull_default_model(load_settings(os.environ, {}).cache, progress)
    out.print(f"{name} is in {folder}", highlight=False)

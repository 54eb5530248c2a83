"""The command line: `turnlog serve`, and commands that read the log of a running or stopped server."""

import click

from app.cli.log import list_responses, show_log, vacuum_store
from app.cli.models import models
from app.cli.serve import serve_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turnlog")
def main() -> None:
    """The OpenAI Responses API from local MLX models, with every turn kept as a log of events.

    Each option can be set by an environment variable too: --port is TURNLOG_PORT.
    """


for command in (serve_command, models, show_log, list_responses, vacuum_store):
    main.add_command(command)

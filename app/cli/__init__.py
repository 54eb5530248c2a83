"""The command line: `turnlog serve`, and commands that read the log of a running or stopped server.

A command's module is loaded when the command is called: the help, and `ls` and `log`, need not wait for what
a server is made of.
"""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from turnlog.adapters.private import close_to_others
from turnlog.app.settings import default_database


class NamedCommand(click.Command):
    """A command of which only its name, and what the list of commands says of it, is loaded so far.

    Args:
        module: where it is.
        attribute: what it is called there.
    """

    def __init__(self, name: str, module: str, attribute: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self._place = module, attribute

    def load(self) -> click.Command:
        """The command itself."""
        module, attribute = self._place
        command = getattr(import_module(f"turnlog.app.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    """A group that lists its commands by what is known of them, and loads the one that is called."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command. What the terminal's encoding lacks is written as an escape, and ends nothing."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, NamedCommand) else command, rest


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turnlog")
def main() -> None:
    """Serve the OpenAI Responses API from local MLX models and keep every turn in an event log."""
    # Whatever a command makes, and the programs it starts, is for its owner only.
    os.umask(0o077)
    close_to_others(default_database().parent)


_COMMANDS = {
    "serve": ("serve", "serve_command", "Serve /v1/responses and /v1/chat/completions."),
    "models": (
        "models",
        "models",
        "List, load, unload and swap the models of the running server.",
    ),
    "keys": ("keys", "keys", "Add, list and revoke API keys."),
    "ls": (
        "ls",
        "list_responses",
        "List responses, newest first.",
    ),
    "log": ("log", "show_log", "Show the events of one turn."),
    "chain": ("chain", "show_chain", "Show the conversation of a response."),
    "compare": ("compare", "compare_turns", "Compare two turns."),
    "usage": ("usage", "show_usage", "Sum tokens and turns."),
    "replay": ("replay", "replay_command", "Replay a finished turn."),
    "cancel": ("removal", "cancel_turn", "Cancel a queued or running turn."),
    "rm": ("removal", "remove_responses", "Delete responses."),
    "export": ("transfer", "export_log", "Export the log to a file."),
    "import": ("transfer", "import_log", "Import an export into an empty log."),
    "backup": ("backup", "back_up", "Copy the log to a file, while it is served."),
    "vacuum": ("upkeep", "vacuum_store", "Reclaim the space of expired responses."),
    "reindex": ("upkeep", "reindex_store", "Rebuild the search index and read model."),
}

for name, (module, attribute, short_help) in _COMMANDS.items():
    main.add_command(NamedCommand(name, module, attribute, short_help))

"""What the command line loads, and when: nobody waits for what their command does not use."""

import subprocess
import sys

import click
import pytest

from turnlog.app.cli import NamedCommand, main

A_SERVERS = {"litestar", "uvicorn", "prometheus_client", "structlog", "httpx", "mlx", "mlx_lm", "llguidance"}


def loaded_after(statement: str) -> set[str]:
    """The modules of a fresh interpreter that ran this."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_help_loads_no_command() -> None:
    loaded = loaded_after("from turnlog.app.cli import main\nmain(['--help'], standalone_mode=False)")

    assert {name for name in loaded if name.startswith("turnlog.app.")} == {
        "turnlog.app.cli",
        "turnlog.app.settings",
    }


@pytest.mark.parametrize("name", ["ls", "log", "chain", "compare", "export", "vacuum"])
def test_a_command_that_reads_the_log_loads_nothing_of_a_server(name: str) -> None:
    program = f"from turnlog.app.cli import main\nmain([{name!r}, '--help'], standalone_mode=False)"

    loaded = loaded_after(program)

    assert loaded & A_SERVERS == set()
    assert "turnlog.app.cli.console" in loaded


@pytest.mark.parametrize("name", main.commands)
def test_what_the_list_says_of_a_command_is_what_the_command_says(name: str) -> None:
    listed = main.commands[name]
    assert isinstance(listed, NamedCommand)

    command = listed.load()

    assert command.name == name
    assert listed.get_short_help_str() == command.get_short_help_str(limit=100)


def test_a_command_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(click.UsageError, match="No such command 'sl'"):
        main(["sl"], standalone_mode=False)

"""Commands run in the test's own process, which is quicker than one of their own."""

from pathlib import Path

from click.testing import CliRunner, Result

from turnlog.app.cli import main


def command(database: Path, *arguments: str) -> Result:
    """Run a command on a log to its end; what it printed, and its exit code."""
    runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"})
    done = runner.invoke(main, [*arguments, "--db", str(database)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def told(database: Path, *arguments: str) -> str:
    """What a command printed that went well."""
    done = command(database, *arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def refusal(database: Path, *arguments: str) -> str:
    """The one line of a command that refused."""
    done = command(database, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line.removeprefix("turnlog: ")

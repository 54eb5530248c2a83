"""`turnlog usage`: sums of tokens and turns."""

import click
from rich.text import Text

from turnlog.adapters.openai.audit import usage_row
from turnlog.app.audit.times import EXAMPLES, read_time
from turnlog.app.cli.console import err, out, print_json
from turnlog.app.cli.log_file import opened
from turnlog.app.cli.options import db_option, json_option
from turnlog.app.cli.printing import plain_table
from turnlog.domain.audit.usage import USAGE_KEYS, read_keys

_NUMBERS = ("turns", "failed", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


@click.command("usage")
@click.option(
    "--by",
    default="owner,model",
    show_default=True,
    metavar="KEYS",
    help=f"What to sum by: any of {', '.join(USAGE_KEYS)}; empty for one sum.",
)
@click.option("--since", metavar="TIME", help=f"Turns made then or later: {EXAMPLES}.")
@click.option("--until", metavar="TIME", help="Turns made before then.")
@json_option
@db_option
def show_usage(by: str, since: str | None, until: str | None, db: str | None, *, as_json: bool) -> None:
    """Sum tokens and turns.

    The most tokens come first. Deleted and expired turns count, too: their numbers stay.

    \b
    turnlog usage --by owner,model --since 30d
    """
    with opened(db) as log:
        keys = read_keys(by)
        now_ms = log.audit.clock.now_ms()
        since_ms, until_ms = (
            read_time(name, text, now_ms=now_ms) if text else None
            for name, text in (("since", since), ("until", until))
        )
        rows = log.ask(log.audit.usage(keys, since_ms=since_ms, until_ms=until_ms))
    if as_json:
        print_json(*map(usage_row, rows))
        return
    if not rows:
        err.print("No turn was made in that time.")
        return
    table = plain_table()
    for key in keys:
        table.add_column(key, no_wrap=True)
    for name in _NUMBERS:
        table.add_column(name.removesuffix("_tokens"), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row.by[key]) for key in keys), *(f"{getattr(row, name):,}" for name in _NUMBERS))
    out.print(table)

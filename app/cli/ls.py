"""`turnlog ls`: find responses."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import click
from rich.table import Table
from rich.text import Text

from turnlog.adapters.openai.audit import row_object, scan_object
from turnlog.app.audit.filters import read_filter
from turnlog.app.audit.times import EXAMPLES
from turnlog.app.cli.console import err, fail, out, print_json
from turnlog.app.cli.log_file import OpenedLog, opened
from turnlog.app.cli.options import db_option, json_option
from turnlog.app.cli.printing import ago, duration, plain_table, status_text
from turnlog.domain.audit.rows import ApiStatus, AuditRow, Scan
from turnlog.domain.events import FailureReason, Surface
from turnlog.domain.lifecycle import Status
from turnlog.domain.owners import LOCAL, LOCAL_OWNER

_STATES = tuple(status.value for status in Status)
_STATUSES = (*_STATES, *(word for word in get_args(ApiStatus) if word not in _STATES))
_REASONS = get_args(FailureReason)

NARROW_COLUMNS = 100
"""A terminal with fewer is shown less of each response, and all of its id."""


@click.command("ls")
@db_option
@click.option(
    "--status",
    metavar="S",
    type=click.Choice([*_STATUSES, *(word for word in _REASONS if word not in _STATUSES)]),
    help="A state (persisted, failed …), an outcome (completed …) or a failure reason (error …).",
)
@click.option("--state", type=click.Choice(_STATES), help="Lifecycle state.")
@click.option("--reason", type=click.Choice(_REASONS), help="Failure reason.")
@click.option("--since", metavar="TIME", help=f"Created at or after TIME, {EXAMPLES}.")
@click.option("--until", metavar="TIME", help="Created before TIME.")
@click.option("--model", metavar="NAME", help="Of this model only.")
@click.option("--owner", metavar="NAME", help="Of this owner only.")
@click.option("--surface", type=click.Choice(get_args(Surface)), help="Asked for by this API.")
@click.option("--chain", metavar="ID", help="In the same conversation as this response.")
@click.option("--replay-of", metavar="ID", help="Replays of this response.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="With this metadata; repeatable.")
@click.option("--tool", metavar="NAME", help="That called this tool.")
@click.option("--min-latency-ms", metavar="N", help="That took at least N ms.")
@click.option("--min-tokens", metavar="N", help="With at least N tokens, input and output.")
@click.option("-q", "--q", metavar="TEXT", help="With this text in the input or the answer.")
@click.option(
    "--order", type=click.Choice(["desc", "asc"]), help="desc: newest first (default); asc: oldest first."
)
@click.option("--after", metavar="ID", help="Continue after this response, the last of the previous page.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of responses."
)
@json_option
def list_responses(db: str | None, *, as_json: bool, **options: Any) -> None:
    """List responses, newest first.

    Only those that match all conditions.

    \b
    turnlog ls --status failed --model qwen --since 2h
    turnlog ls -q "order 1234" --metadata team=shop
    """
    with opened(db) as log:
        wanted = read_filter(list(_conditions(log, options)), now_ms=log.audit.clock.now_ms())
        found = log.ask(log.audit.find(wanted, LOCAL))
        now_ms = log.audit.clock.now_ms()
    page = found.page
    if as_json:
        print_json(*map(row_object, found.rows), *([scan_object(page.scan)] if page.scan else []))
        return
    if page.rows:
        out.print(response_table(page.rows, now_ms, narrow=out.width < NARROW_COLUMNS))
    elif not page.has_more:
        err.print("No matching responses.")
    if page.scan and page.scan.cut:
        err.print(scan_line(page.scan, now_ms))
    if page.has_more:
        err.print(f"More responses: add --after {page.last_id}")


def scan_line(scan: Scan, now_ms: int) -> str:
    """How far a scan came that stopped at its bound."""
    assert scan.reached_ms is not None
    reached = ago((now_ms - scan.reached_ms) / 1000)
    return f"Text this short has no index: searched {scan.responses:,} responses so far, up to {reached}."


def _conditions(log: OpenedLog, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The options as the names and values of a filter."""
    word = options.pop("status")
    if word is not None:
        name = "state" if word in _STATES else "status" if word in _STATUSES else "reason"
        if options.get(name) not in (None, word):
            fail(f"--status {word} and --{name} {options[name]} exclude each other.")
        options[name] = word
    for each in options.pop("metadata"):
        key, equals, value = each.partition("=")
        if not (key and equals):
            fail(f"--metadata is '{each}': expected KEY=VALUE.")
        yield f"metadata.{key}", value
    for name in ("chain", "replay_of", "after"):
        if options[name] is not None:
            options[name] = log.whole_id(options[name])
    for name, value in options.items():
        if value is not None:
            yield name, str(value)


def response_table(rows: Iterable[AuditRow], now_ms: int, *, narrow: bool) -> Table:
    """Responses as a table. Owners are shown if there are others than the local one.

    Args:
        narrow: whether there is no room for what can be guessed from the rest.
    """
    rows = list(rows)
    owned = any(row.owner != LOCAL_OWNER for row in rows)
    table = plain_table()
    # An id that is cut is of no use to whoever copies it.
    table.add_column("response", no_wrap=True, min_width=37)
    for title in (
        "created",
        *(["owner"] if owned else []),
        "model",
        *([] if narrow else ["state"]),
        "outcome",
    ):
        table.add_column(title, no_wrap=True)
    for title in ("tokens",) if narrow else ("duration", "tokens"):
        table.add_column(title, no_wrap=True, justify="right")
    for row in rows:
        table.add_row(
            row.response_id,
            ago((now_ms - row.created_ms) / 1000),
            *([Text(row.owner)] if owned else []),
            Text(row.model),
            *([] if narrow else [row.state]),
            _ending(row),
            *([] if narrow else [duration(row.latency_ms)]),
            str(row.usage.total_tokens) if row.usage else "",
        )
    return table


def _ending(row: AuditRow) -> Text:
    if row.ended_ms is None:
        return Text()
    text = Text(row.reason, style="red") if row.reason else status_text(row)
    return text.append(" (replay)", style="dim") if row.replay_of else text

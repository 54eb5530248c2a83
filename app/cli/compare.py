"""`turnlog compare`: two turns beside each other."""

from collections.abc import Iterator

import click
from rich.table import Table
from rich.text import Text

from turnlog.adapters.openai.audit import comparison_object
from turnlog.app.cli.console import out, print_json
from turnlog.app.cli.log_file import opened
from turnlog.app.cli.options import db_option
from turnlog.app.cli.printing import duration, plain_table, printable, shortened
from turnlog.domain.audit.compare import Comparison, Ended, TextDifference
from turnlog.domain.owners import LOCAL

_SAME = {True: ("same", "green"), False: ("different", "yellow"), None: ("unknown", "dim")}
_NEVER_THE_SAME = ("first token", "duration")
_WIDTH = 50
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@click.command("compare")
@click.argument("a")
@click.argument("b")
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare_turns(a: str, b: str, db: str | None, *, as_json: bool) -> None:
    """Compare two turns.

    For example a failed one and its replay. Shows whether the prompts match, which parameters differ, where
    the answers diverge, and both outcomes. A and B may be unique prefixes of ids.
    """
    with opened(db) as log:
        comparison = log.ask(log.audit.compare(log.whole_id(a), log.whole_id(b), LOCAL))
    if as_json:
        print_json(comparison_object(comparison))
        return
    out.print(_side_by_side(comparison))
    for line in _differences(comparison):
        out.print(line)


def _side_by_side(found: Comparison) -> Table:
    table = plain_table()
    table.add_column("", style="dim", no_wrap=True)
    for side in ("a", "b"):
        table.add_column(side, overflow="fold")
    table.add_row("response", found.ids.a, found.ids.b)
    for title, left, right in _facts(found):
        style = "" if left == right or title in _NEVER_THE_SAME else "yellow"
        table.add_row(title, Text(left, style=style), Text(right, style=style))
    return table


def _facts(found: Comparison) -> Iterator[tuple[str, str, str]]:
    a, b = found.ended.a, found.ended.b
    yield "outcome", _ending(a), _ending(b)
    yield "input tokens", _count(a, "input_tokens"), _count(b, "input_tokens")
    yield "output tokens", _count(a, "output_tokens"), _count(b, "output_tokens")
    yield "first token", duration(a.first_token_ms), duration(b.first_token_ms)
    yield "duration", duration(a.duration_ms), duration(b.duration_ms)
    for name, pair in found.parameters.items():
        left, right = (shortened(printable(str(value)), _WIDTH) for value in (pair.a, pair.b))
        yield name, left, right


def _ending(ended: Ended) -> str:
    return f"{ended.status} ({ended.reason})" if ended.reason else ended.status


def _count(ended: Ended, name: str) -> str:
    return "" if ended.usage is None else str(ended.usage[name])


def _differences(found: Comparison) -> Iterator[Text]:
    yield Text()
    yield _verdict("input", found.input.same, "; ".join(found.input.differs))
    yield _verdict("prompt", found.prompt.same)
    yield _verdict("model", found.model_fingerprint.same)
    yield _verdict("text", found.text.same, _place(found.text))
    yield _verdict("reasoning", found.reasoning.same, _place(found.reasoning))
    yield _verdict("tool calls", found.tool_calls.same)
    if found.tokens is None:
        yield _verdict("token ids", None)
    else:
        ids = found.tokens.ids
        place = f"from token {found.tokens.first_difference}: {ids.a} and {ids.b}" if ids else ""
        yield _verdict("token ids", found.tokens.same, place)
    for line in found.text.diff:
        yield Text(printable(line), style=_DIFF_STYLES.get(line[:1], ""))


def _verdict(what: str, same: bool | None, more: str = "") -> Text:  # noqa: FBT001 - a verdict is one of three
    word, style = _SAME[same]
    return Text.assemble((f"{what:<12}", "dim"), (word, style), f"  {more}" if more else "")


def _place(text: TextDifference) -> str:
    return "" if text.same else f"from character {text.first_difference}"

"""`turnlog chain`: the conversation that a response is part of."""

from collections import Counter
from collections.abc import Iterator

import click
from rich.text import Text

from turnlog.adapters.openai.audit import line_object
from turnlog.app.cli.console import err, out, print_json
from turnlog.app.cli.log_file import opened
from turnlog.app.cli.options import db_option
from turnlog.app.cli.printing import ago, indented, printable, shortened, status_text
from turnlog.domain.audit.trees import Kind
from turnlog.domain.audit.views import Conversation, Line
from turnlog.domain.owners import LOCAL

_MARKS: dict[Kind, str] = {
    "start": "●",
    "continuation": "●",
    "fork": "├ fork",
    "attempt": "├ failed attempt",
    "replay": "├ replay",
}
_NAMES: dict[Kind, tuple[str, str]] = {
    "fork": ("fork", "forks"),
    "attempt": ("failed attempt", "failed attempts"),
    "replay": ("replay", "replays"),
}
_SHORT = 200


@click.command("chain")
@click.argument("response_id")
@db_option
@click.option("--full", is_flag=True, help="Do not shorten texts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, in reading order.")
def show_chain(response_id: str, db: str | None, *, full: bool, as_json: bool) -> None:
    """Show the conversation of a response.

    Branches (forks, failed attempts, replays) are indented below the response they branch from.
    RESPONSE_ID may be a unique prefix of an id.
    """
    with opened(db) as log:
        whole_id = log.whole_id(response_id)
        conversation = log.ask(log.audit.conversation(whole_id, LOCAL))
        now_ms = log.audit.clock.now_ms()
    if as_json:
        print_json(*map(line_object, conversation.lines))
        return
    out.print(_counted(conversation), style="dim")
    for line in conversation.lines:
        for text in _told(line, now_ms, asked_for=whole_id, full=full):
            out.print(text)
    if conversation.cut:
        err.print("Output truncated: the conversation is longer.")


def _counted(conversation: Conversation) -> str:
    kinds = Counter(line.kind for line in conversation.lines)
    count = kinds["start"] + kinds["continuation"]
    turns = f"{count} turn{'s' * (count != 1)}"
    aside = [f"{kinds[kind]} {names[kinds[kind] != 1]}" for kind, names in _NAMES.items() if kind in kinds]
    return f"conversation of {', '.join([turns, *aside])}"


def _told(line: Line, now_ms: int, *, asked_for: str, full: bool) -> Iterator[Text]:
    row, depth = line.row, 2 * line.depth
    here = "bold" if row.response_id == asked_for else ""
    yield Text.assemble(
        " " * depth,
        (_MARKS[line.kind], "cyan"),
        " ",
        (row.response_id, here),
        f"  {ago((now_ms - row.created_ms) / 1000)}  ",
        status_text(row),
    )
    if line.content == "expired":
        yield Text(" " * (depth + 4) + "content removed: the response has expired", style="dim")
    elif line.exchange:
        for said, style in ((line.exchange.asked, "bold"), (line.exchange.answered, "")):
            text = said if full else shortened(said, _SHORT)
            yield Text(indented(printable(text), depth + 4), style=style)

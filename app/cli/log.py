"""`turnlog log`: one turn, what happened in it and, if it failed, why."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click
from rich.text import Text

from turnlog.adapters.openai.events import event_object
from turnlog.app.cli.console import out, print_json
from turnlog.app.cli.log_file import opened
from turnlog.app.cli.options import db_option
from turnlog.app.cli.printing import ago, duration, indented, printable, status_text
from turnlog.app.cli.timeline import timeline
from turnlog.domain.audit.failures import failure
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.audit.views import RowView, TurnView
from turnlog.domain.messages import Message
from turnlog.domain.owners import LOCAL


@click.command("log")
@click.argument("response_id")
@db_option
@click.option("--seen", is_flag=True, help="Also show the messages in the prompt.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print only the stored events, one JSON object per line."
)
def show_log(response_id: str, db: str | None, *, seen: bool, as_json: bool) -> None:
    """Show the events of one turn.

    For a failed turn, also the cause and a suggested action. RESPONSE_ID may be a unique prefix of an id.
    Times are relative to when the turn was accepted.
    """
    with opened(db) as log:
        turn = log.ask(log.audit.turn(log.whole_id(response_id), LOCAL))
        now_ms = log.audit.clock.now_ms()
    if as_json:
        print_json(*map(event_object, turn.events))
        return
    for line in heading(turn, now_ms):
        out.print(line)
    out.print()
    out.print(timeline(turn.events))
    if seen:
        out.print()
        for line in seen_lines(turn):
            out.print(line)
    for line in failure_lines(turn):
        out.print(line)


def heading(turn: TurnView, now_ms: int) -> Iterator[Text]:
    """What there is to say of the turn as a whole."""
    row = turn.row
    yield Text.assemble((row.response_id, "bold"), "  ", status_text(row))
    at = datetime.fromtimestamp(row.created_ms / 1000, UTC)
    created = f"{at:%Y-%m-%d %H:%M:%S} UTC, {ago((now_ms - row.created_ms) / 1000)}"
    yield Text(f"model {row.model}, owner {row.owner}, created {created}")
    if row.usage:
        cached = f" ({row.usage.cached_tokens} cached)" if row.usage.cached_tokens else ""
        started = turn.response.started
        # A turn that failed may have no usage; that it was given a prompt is known all the same.
        read = row.usage.input_tokens or (started.prompt.tokens if started else 0)
        yield Text(
            f"{read} input tokens{cached}, {row.usage.output_tokens} output tokens, "
            f"{duration(row.latency_ms)} in total"
        )
    else:
        yield Text("Still running. These are the events stored so far.", style="yellow")
    if row.previous_response_id:
        yield Text(f"continues {row.previous_response_id}")
    if row.follows:
        yield Text(f"its history is that of {row.follows}")
    if row.replay_of:
        yield Text(f"replays {row.replay_of}")
    yield from _related("replayed by", turn.replays)
    for number, each in enumerate(turn.attempts, start=1):
        yield from _related(f"attempt {number} of {len(turn.attempts)}:", [each])
    yield from _expiry(row, now_ms)


def _related(what: str, rows: Sequence[RowView]) -> Iterator[Text]:
    for each in rows:
        yield Text.assemble(f"{what} {each.row.response_id}  ", status_text(each.row))


def _expiry(row: AuditRow, now_ms: int) -> Iterator[Text]:
    if row.expired:
        yield Text("Expired: its content has been removed, its metadata is kept.", style="yellow")
    elif row.expires_at * 1000 <= now_ms:
        yield Text("Expired: hidden from clients. The next sweep removes its content.", style="yellow")


def failure_lines(turn: TurnView) -> Iterator[Text]:
    """Why the turn failed; nothing if it did not."""
    failed = failure(turn.response)
    if failed is None:
        return
    yield Text()
    yield Text.assemble(("Why it failed: ", "bold red"), failed.happened)
    if failed.message:
        yield Text.assemble(("Engine error: ", "bold"), printable(failed.message))
    yield Text.assemble(("Suggested action: ", "bold"), failed.advice)


def seen_lines(turn: TurnView) -> Iterator[Text]:
    """The messages that the model read."""
    if turn.seen is None:
        yield Text("The prompt is no longer available.", style="yellow")
        return
    if turn.seen.missing:
        yield Text(
            f"Earlier messages are missing: {turn.seen.missing} is gone, with everything before it.",
            style="yellow",
        )
    if turn.seen.left_out:
        yield Text(
            f"The oldest {turn.seen.left_out} messages were truncated to fit the context window.",
            style="yellow",
        )
    for message in turn.seen.messages:
        yield Text(message.role, style="bold cyan")
        yield Text(indented(printable(_message_text(message)), 2))


def _message_text(message: Message) -> str:
    pieces = [
        message.reasoning and f"[thinks] {message.reasoning}",
        message.content,
        *(f"[calls {call.name} {call.arguments}]" for call in message.tool_calls),
        *(f"[{image.media_type}, {len(image.content):,} bytes]" for image in message.images),
    ]
    return "\n".join(piece for piece in pieces if piece)

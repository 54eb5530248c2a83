"""How the commands write what they show again and again: states, ids, durations."""

from rich.text import Text

from turnlog.domain.audit.rows import AuditRow

_STYLES = {
    "queued": "cyan",
    "in_progress": "yellow",
    "completed": "green",
    "incomplete": "yellow",
    "failed": "bold red",
    "cancelled": "red",
}


def status_text(row: AuditRow) -> Text:
    """The API's status, and the reason of a failure."""
    reason = f" ({row.reason})" if row.reason and row.reason != row.status else ""
    return Text(row.status + reason, style=_STYLES[row.status])


def duration(milliseconds: float | None) -> str:
    """How long something took; empty if that is not known."""
    if milliseconds is None:
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def shortened(text: str, width: int) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def indented(text: str, spaces: int) -> str:
    """Every line of the text after so many spaces."""
    return "\n".join(" " * spaces + line for line in text.splitlines())

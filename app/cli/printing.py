"""How the commands write on a terminal: tables, states, times, and texts of strangers."""

from rich.table import Table
from rich.text import Text

from turnlog.domain.audit.rows import AuditRow

_PICTURES = 0x2400
"""Where Unicode has a picture for each control character."""

# Tabs and line ends are harmless; the others could forge what an auditor sees.
_SHOWN = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **{code: f"\\x{code:02x}" for code in range(0x7F, 0xA0)},
    # Embeddings, overrides and isolates: the text would read in another order than it is.
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


_STATUS_STYLES = {
    "queued": "cyan",
    "in_progress": "yellow",
    "completed": "green",
    "incomplete": "yellow",
    "failed": "bold red",
    "cancelled": "red",
}


def printable(text: str) -> str:
    """The text with its control characters visible: none can move the cursor or turn the reading order."""
    return text.translate(_SHOWN)


def shortened(text: str, width: int) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def indented(text: str, spaces: int) -> str:
    """Every line of the text after so many spaces."""
    return "\n".join(" " * spaces + line for line in text.splitlines())


def plain_table() -> Table:
    """A table without lines."""
    return Table(box=None, pad_edge=False, header_style="dim")


def status_text(row: AuditRow) -> Text:
    """The API's status, and the reason of a failure."""
    reason = f" ({row.reason})" if row.reason and row.reason != row.status else ""
    return Text(row.status + reason, style=_STATUS_STYLES[row.status])


def duration(milliseconds: float | None) -> str:
    """How long something took; empty if that is not known."""
    if milliseconds is None:
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def ago(seconds: float) -> str:
    """How long ago that was, in its largest unit."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s:
            return f"{seconds // length_s:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"

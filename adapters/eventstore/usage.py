"""Sums of tokens and turns over the read model."""

# Columns are of the table below; whatever comes from outside is a parameter.
# ruff: noqa: S608

from collections.abc import Sequence

from eventsourcing.sqlite import SQLiteCursor

from turnlog.domain.audit.usage import UsageKey, UsageSum

_COLUMNS: dict[UsageKey, str] = {
    "owner": "owner",
    "model": "model",
    "day": "strftime('%Y-%m-%d', created_ms / 1000, 'unixepoch')",
}
_SUMS = """
    count(*) AS turns, coalesce(sum(state = 'failed'), 0) AS failed,
    coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(cached_tokens), 0) AS cached_tokens,
    coalesce(sum(output_tokens), 0) AS output_tokens,
    coalesce(sum(reasoning_tokens), 0) AS reasoning_tokens
"""

_IN_TIME = """
    created_ms >= coalesce(:since_ms, created_ms) AND created_ms < coalesce(:until_ms, created_ms + 1)
"""


def sums(
    cursor: SQLiteCursor, by: Sequence[UsageKey], since_ms: int | None, until_ms: int | None
) -> list[UsageSum]:
    """See `AuditReader.usage`."""
    keys = "".join(f"{_COLUMNS[key]} AS key_{key}, " for key in by)
    grouped = f"GROUP BY {', '.join(f'key_{key}' for key in by)}" if by else ""
    cursor.execute(
        f"SELECT {keys}{_SUMS} FROM responses WHERE {_IN_TIME} {grouped}",
        {"since_ms": since_ms, "until_ms": until_ms},
    )
    found = [
        UsageSum(
            by={key: row[f"key_{key}"] for key in by},
            turns=row["turns"],
            failed=row["failed"],
            input_tokens=row["input_tokens"],
            cached_tokens=row["cached_tokens"],
            output_tokens=row["output_tokens"],
            reasoning_tokens=row["reasoning_tokens"],
        )
        for row in cursor.fetchall()
    ]
    return sorted(found, key=lambda each: (-each.total_tokens, -each.turns, *each.by.values()))

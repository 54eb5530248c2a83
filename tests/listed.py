"""The rows of a store, all of them, for tests that want to see what is there."""

from typing import Any

from turnlog.domain.audit.filters import MAX_LIMIT, AuditFilter
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.ports import AuditReader


def listed(reader: AuditReader, **conditions: Any) -> list[AuditRow]:
    """The rows that meet the conditions of an `AuditFilter`, the newest first."""
    rows: list[AuditRow] = []
    after = None
    while True:
        page = reader.find(AuditFilter(limit=MAX_LIMIT, after=after, **conditions)).result()
        rows += page.rows
        if not page.has_more:
            return rows
        after = page.rows[-1].response_id

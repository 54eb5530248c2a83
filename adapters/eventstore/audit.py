"""Queries of the read model for auditors; each runs in the one transaction of its cursor."""

# Statements are joined of the pieces in this file; whatever comes from outside is a parameter.
# ruff: noqa: S608

import json
from typing import Any

from eventsourcing.sqlite import SQLiteCursor

from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.finder import Finder
from turnlog.domain.audit.attempts import attempts_with
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.audit.rows import AuditPage, AuditRow
from turnlog.domain.usage import Usage

FAMILY_LIMIT = 10_000
"""The most responses of one conversation that are listed."""

_NEIGHBOURS = 100
"""How many responses with the same body count as candidates for attempts, before and after one."""

_ROWS = """
    SELECT responses.*, expiries.expires_at AS expires,
        (SELECT json_group_array(name) FROM response_tools WHERE response_tools.n = responses.n) AS tools
    FROM responses JOIN expiries USING (response_id)
"""
_ROW = f"{_ROWS} WHERE response_id = :response_id AND coalesce(owner = :owner, TRUE)"
_NUMBERED = f"{_ROWS} WHERE n IN (SELECT value FROM json_each(:numbers))"
_FAMILY = f"""
    {_ROWS}
    WHERE chain = (
        SELECT chain FROM responses WHERE response_id = :response_id AND coalesce(owner = :owner, TRUE)
    ) AND coalesce(owner = :owner, TRUE)
    ORDER BY created_ms, n LIMIT :limit
"""
_REPLAYS = f"""
    {_ROWS} WHERE replay_of = :response_id AND coalesce(owner = :owner, TRUE)
    ORDER BY created_ms, n
"""
_SAME_REQUEST = f"""
    WITH this AS (
        SELECT * FROM responses WHERE response_id = :response_id AND coalesce(owner = :owner, TRUE)
    ), alike AS (
        SELECT n FROM this
        UNION
        SELECT n FROM (
            SELECT other.n FROM this JOIN responses AS other ON other.retry_digest = this.retry_digest
            ORDER BY other.created_ms LIMIT {2 * _NEIGHBOURS}
        )
        UNION
        SELECT n FROM (
            SELECT other.n FROM this JOIN responses AS other
                ON other.body_digest = this.body_digest AND other.created_ms <= this.created_ms
            ORDER BY other.created_ms DESC LIMIT {_NEIGHBOURS}
        )
        UNION
        SELECT n FROM (
            SELECT other.n FROM this JOIN responses AS other
                ON other.body_digest = this.body_digest AND other.created_ms > this.created_ms
            ORDER BY other.created_ms LIMIT {_NEIGHBOURS}
        )
    )
    {_ROWS} WHERE n IN (SELECT n FROM alike) ORDER BY created_ms, n
"""
_BEGINNING = """
    SELECT response_id FROM responses WHERE response_id >= :prefix AND response_id < :behind
    ORDER BY response_id LIMIT :limit
"""
_LAST_CHARACTER = "\U0010ffff"


def page(cursor: SQLiteCursor, mapper: EventMapper, wanted: AuditFilter) -> AuditPage:
    """See `AuditReader.find`."""
    numbers, scan = Finder(cursor, mapper, wanted).find(wanted.limit + 1)
    shown = numbers[: wanted.limit]
    cursor.execute(_NUMBERED, {"numbers": json.dumps(shown)})
    rows = {row["n"]: _audit_row(row) for row in cursor.fetchall()}
    has_more = len(numbers) > wanted.limit or bool(scan and scan.cut)
    return AuditPage([rows[n] for n in shown], has_more, scan)


def row(cursor: SQLiteCursor, response_id: str, owner: str | None) -> AuditRow | None:
    """See `AuditReader.row`."""
    return next(iter(_rows(cursor, _ROW, response_id=response_id, owner=owner)), None)


def family(cursor: SQLiteCursor, response_id: str, owner: str | None, limit: int) -> list[AuditRow]:
    """See `AuditReader.family`."""
    return _rows(cursor, _FAMILY, response_id=response_id, owner=owner, limit=limit)


def replays_of(cursor: SQLiteCursor, response_id: str, owner: str | None) -> list[AuditRow]:
    """See `AuditReader.replays_of`."""
    return _rows(cursor, _REPLAYS, response_id=response_id, owner=owner)


def attempts_of(cursor: SQLiteCursor, response_id: str, owner: str | None) -> list[AuditRow]:
    """See `AuditReader.attempts_of`."""
    # Digests cover the owner, so that nobody else's response is among them.
    return attempts_with(response_id, _rows(cursor, _SAME_REQUEST, response_id=response_id, owner=owner))


def ids_beginning(cursor: SQLiteCursor, prefix: str, limit: int) -> list[str]:
    """The ids of responses that begin with `prefix`, at most `limit`, in order."""
    cursor.execute(_BEGINNING, {"prefix": prefix, "behind": prefix + _LAST_CHARACTER, "limit": limit})
    return [response_id for (response_id,) in cursor.fetchall()]


def _rows(cursor: SQLiteCursor, statement: str, **parameters: Any) -> list[AuditRow]:
    cursor.execute(statement, parameters)
    return [_audit_row(row) for row in cursor.fetchall()]


def _audit_row(row: Any) -> AuditRow:
    usage = row["input_tokens"] is not None and Usage(
        row["input_tokens"], row["output_tokens"], row["cached_tokens"], row["reasoning_tokens"]
    )
    return AuditRow(
        response_id=row["response_id"],
        previous_response_id=row["previous_response_id"],
        chain=row["chain"],
        replay_of=row["replay_of"],
        follows=row["follows"],
        surface=row["surface"],
        owner=row["owner"],
        model=row["model"],
        state=row["state"],
        status=row["status"],
        outcome=row["outcome"],
        reason=row["reason"],
        created_ms=row["created_ms"],
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        expires_at=row["expires"],
        last_version=row["last_version"],
        expired=bool(row["expired"]),
        deleted=row["deleted_at"] is not None,
        usage=usage or None,
        tools=tuple(json.loads(row["tools"])),
        retry_digest=row["retry_digest"] and row["retry_digest"].hex(),
        body_digest=row["body_digest"] and row["body_digest"].hex(),
        is_retry=bool(row["is_retry"]),
    )

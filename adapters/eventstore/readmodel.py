"""What lists and chains stand on: rows told by the events, written in the transaction of the events.

One row per response and one per item id. They hold nothing of their own, so they can be made again from
the log at any time; `VERSION` rises whenever the rows would come out differently.
"""

from typing import Any, assert_never

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteCursor

from adapters.eventstore.codec import EventMapper
from domain.events import (
    ContentExpired,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    PersistHardTimedOut,
    ReasoningDropped,
    Recorded,
    ResponseCreated,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)

VERSION = 2

_TABLES = (
    "DROP TABLE IF EXISTS responses",
    "DROP TABLE IF EXISTS response_items",
    """
    CREATE TABLE responses (
        response_id TEXT PRIMARY KEY,
        previous_response_id TEXT,
        owner TEXT NOT NULL,
        model TEXT NOT NULL,
        status TEXT NOT NULL,
        outcome TEXT,
        reason TEXT,
        created_ms INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        last_version INTEGER NOT NULL,
        expired INTEGER NOT NULL
    )
    """,
    "CREATE INDEX responses_newest ON responses (created_ms, response_id)",
    "CREATE INDEX responses_with_content ON responses (expires_at, response_id) WHERE NOT expired",
    """
    CREATE TABLE response_items (
        item_id TEXT PRIMARY KEY,
        response_id TEXT NOT NULL,
        output_index INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX items_of_response ON response_items (response_id)",
)

_NEW_RESPONSE = """
    INSERT INTO responses VALUES (
        :response_id, :previous_response_id, :owner, :model, 'created', NULL, NULL,
        :created_ms, :expires_at, :last_version, 0
    )
"""
_CHANGED_RESPONSE = """
    UPDATE responses SET
        status = coalesce(:status, status),
        outcome = coalesce(:outcome, outcome),
        reason = coalesce(:reason, reason),
        last_version = :last_version
    WHERE response_id = :response_id
"""
_EXPIRED_RESPONSE = """
    UPDATE responses SET expired = 1, last_version = :last_version WHERE response_id = :response_id
"""
_ITEMS_GONE = "DELETE FROM response_items WHERE response_id = :response_id"
# The first response to use an item id keeps it: nobody takes over another's item by naming it again.
_NEW_ITEM = "INSERT INTO response_items VALUES (:item_id, :response_id, :output_index) ON CONFLICT DO NOTHING"

RowChange = tuple[str, dict[str, Any]]
"""A statement and its parameters."""


def row_changes(recorded: Recorded) -> list[RowChange]:  # noqa: PLR0911  # one case for each event
    """How the rows change when this event is stored.

    A stored `TurnCommitted` *is* persisted, so that is the status its row gets; the events that tell how
    its write went change nothing. A response whose content was removed keeps its row but no items.
    """

    def changed(
        status: str | None = None, *, outcome: str | None = None, reason: str | None = None
    ) -> RowChange:
        return _CHANGED_RESPONSE, {
            "response_id": recorded.response_id,
            "status": status,
            "outcome": outcome,
            "reason": reason,
            "last_version": recorded.version,
        }

    match recorded.event:
        case ResponseCreated() as event:
            created = {
                "response_id": recorded.response_id,
                "previous_response_id": event.previous_response_id,
                "owner": event.owner,
                "model": event.model,
                "created_ms": event.at_ms,
                "expires_at": event.expires_at,
                "last_version": recorded.version,
            }
            return [(_NEW_RESPONSE, created)]
        case GenerationStarted():
            return [changed("in_progress")]
        case ItemOpened() as event:
            item = {
                "item_id": event.item.id,
                "response_id": recorded.response_id,
                "output_index": event.output_index,
            }
            return [changed(), (_NEW_ITEM, item)]
        case TurnCommitted() as event:
            return [changed("persisted", outcome=event.status)]
        case TurnFailed() as event:
            return [changed("failed", reason=event.reason)]
        case ContentExpired():
            expired = {"response_id": recorded.response_id, "last_version": recorded.version}
            return [(_EXPIRED_RESPONSE, expired), (_ITEMS_GONE, {"response_id": recorded.response_id})]
        case ItemExtended() | ItemClosed() | ReasoningDropped() | TurnPersisted() | PersistHardTimedOut():
            return [changed()]
        case _ as unreachable:
            assert_never(unreachable)


def record(cursor: SQLiteCursor, recorded: Recorded) -> None:
    """Change the rows for an event that is being stored."""
    for statement, parameters in row_changes(recorded):
        cursor.execute(statement, parameters)


def version(cursor: SQLiteCursor) -> int | None:
    """The version of the rows that are there; None if there are none yet."""
    cursor.execute("SELECT version FROM readmodel_version")
    row = cursor.fetchone()
    return row and int(row["version"])


def bring_up_to_date(cursor: SQLiteCursor, mapper: EventMapper) -> None:
    """Make the rows again from the log if another version of them is there, or none.

    Raises:
        StorageError: an event of the log cannot be read.
    """
    cursor.execute("CREATE TABLE IF NOT EXISTS readmodel_version (version INTEGER NOT NULL)")
    if version(cursor) == VERSION:
        return
    for statement in _TABLES:
        cursor.execute(statement)
    # A cursor of its own, so that the log is not held in memory while the rows are written.
    log = cursor.sqlite_cursor.connection.execute("SELECT * FROM stored_events ORDER BY rowid")
    for row in log:
        record(cursor, mapper.to_domain_event(StoredEvent(*row)))
    cursor.execute("DELETE FROM readmodel_version")
    cursor.execute("INSERT INTO readmodel_version VALUES (:version)", {"version": VERSION})

"""What lists and chains stand on: rows told by the events, written in the transaction of the events.

One row per response and conversation, one per item id, one per metadata key and called tool, and the text
index. They hold nothing of their own, so they can be made again from the log at any time; `VERSION` rises
whenever the rows would come out differently.
"""

# Statements are joined of the pieces in this file; whatever comes from outside is a parameter.
# ruff: noqa: S608

import unicodedata
from collections.abc import Callable
from typing import Any, assert_never

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteCursor

from turnlog.adapters.eventstore import textindex
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.schema import TABLES
from turnlog.adapters.retry_keys import RETRY_COUNT
from turnlog.domain.audit.attempts import request_digests
from turnlog.domain.audit.search import metadata_texts, searchable_text
from turnlog.domain.audit.transcripts import history_digest, transcript_digest
from turnlog.domain.events import (
    ContentExpired,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    MetadataChanged,
    PersistHardTimedOut,
    ReasoningDropped,
    Recorded,
    ResponseCreated,
    ResponseDeleted,
    SteerAccepted,
    SteersCommitted,
    SteersFailed,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
    TurnRequeued,
    topic,
)
from turnlog.domain.items import CallItem, CustomCallItem, FunctionCallItem
from turnlog.domain.response import Response, fold
from turnlog.domain.retention import requested_retention_s

FORM = 7
# Texts are folded by this Python's tables, and leave the index only by the form in which they came into it.
VERSION = 1000 * FORM + int(unicodedata.unidata_version.partition(".")[0])

Progress = Callable[[int, int], None]
"""Called with the number of events read and the number there are."""

# The newest response of the owner's whose transcript a chat's history is (decision 25).
_FOLLOWED = """
    SELECT {column} FROM responses WHERE transcript_digest = :history_digest AND owner = :owner
    ORDER BY created_ms DESC, n DESC LIMIT 1
"""
# A parent that is not stored yet gives its id for now, and its own chain when it comes.
_NEW_RESPONSE = f"""
    INSERT INTO responses (
        response_id, previous_response_id, replay_of, follows, chain, surface, owner, model, state, status,
        created_ms, expires_at, limited, last_version, owed_steers, expired,
        retry_digest, body_digest, is_retry
    ) VALUES (
        :response_id, :previous_response_id, :replay_of, ({_FOLLOWED.format(column="response_id")}),
        coalesce(
            (SELECT chain FROM responses WHERE response_id = :parent), :parent,
            ({_FOLLOWED.format(column="chain")}), :response_id
        ),
        :surface, :owner, :model, 'created', 'queued', :created_ms, :expires_at, :limited, :last_version,
        0, 0, :retry_digest, :body_digest, :is_retry
    )
"""
_CHILDREN_JOIN_CHAIN = """
    UPDATE responses SET chain = (SELECT chain FROM responses WHERE response_id = :response_id)
    WHERE chain = :response_id AND response_id <> :response_id
"""
_CHAIN = "(SELECT chain FROM responses WHERE response_id = :response_id)"
# The first response of a conversation gives it its own expiry; from then on each use moves it.
_CONVERSATION = f"""
    INSERT INTO conversations VALUES ({_CHAIN}, :expires_at, 0) ON CONFLICT DO UPDATE SET expired = 0
"""
_CONVERSATIONS_JOIN = f"""
    UPDATE conversations SET expires_at = max(
        expires_at, coalesce((SELECT expires_at FROM conversations WHERE chain = :response_id), 0)
    ) WHERE chain = {_CHAIN}
"""
_JOINED_CONVERSATION_GONE = f"""
    DELETE FROM conversations WHERE chain = :response_id AND chain <> {_CHAIN}
"""
# Not what expired before the turn was accepted: what is gone for its owner never comes back. A replay is no
# use of the conversation, and as all turns, it has its own expiry besides.
_CONVERSATION_USED = """
    UPDATE conversations SET expires_at = max(conversations.expires_at, used.expires_at)
    FROM responses AS used
    WHERE used.response_id = :response_id AND used.replay_of IS NULL
        AND conversations.chain = used.chain AND conversations.expires_at > used.created_ms / 1000
"""
_CONVERSATION_EXPIRED = f"""
    UPDATE conversations SET expired = 1
    WHERE chain = {_CHAIN} AND NOT EXISTS (
        SELECT 1 FROM responses WHERE responses.chain = conversations.chain AND NOT responses.expired
    )
"""
_NEW_METADATA = """
    INSERT INTO response_metadata
    SELECT :key, :value, created_ms, n FROM responses WHERE response_id = :response_id
"""
_LONGER_RESPONSE = "UPDATE responses SET last_version = :last_version WHERE response_id = :response_id"
_STARTED_RESPONSE = """
    UPDATE responses
    SET state = 'in_progress', status = 'in_progress', started_ms = :started_ms, last_version = :last_version
    WHERE response_id = :response_id
"""
_ENDED_RESPONSE = """
    UPDATE responses SET
        state = :state, status = :status, outcome = :outcome, reason = :reason, ended_ms = :ended_ms,
        input_tokens = :input_tokens, output_tokens = :output_tokens,
        cached_tokens = :cached_tokens, reasoning_tokens = :reasoning_tokens,
        last_version = :last_version
    WHERE response_id = :response_id
"""
_STEERED = """
    UPDATE responses SET owed_steers = owed_steers + :more, last_version = :last_version
    WHERE response_id = :response_id
"""
# A response without a digest has begun to lose its content, of which the name is part.
_NEW_TOOL = """
    INSERT INTO response_tools
    SELECT :name, created_ms, n FROM responses
    WHERE response_id = :response_id AND body_digest IS NOT NULL
    ON CONFLICT DO NOTHING
"""
_DELETED_RESPONSE = """
    UPDATE responses SET deleted_at = :at_s, last_version = :last_version WHERE response_id = :response_id
"""
# The conversation of a response that expired by the rules of an earlier version may go on.
_EXPIRED_RESPONSE = """
    UPDATE responses SET expired = 1, last_version = :last_version,
        expires_at = (SELECT min(expires_at, :at_s) FROM expiries WHERE response_id = :response_id)
    WHERE response_id = :response_id
"""
_TRANSCRIPT = """
    UPDATE responses SET transcript_digest = :transcript_digest WHERE response_id = :response_id
"""
_DIGESTS_GONE = """
    UPDATE responses SET retry_digest = NULL, body_digest = NULL, transcript_digest = NULL
    WHERE response_id = :response_id
"""
_ITEMS_GONE = "DELETE FROM response_items WHERE response_id = :response_id"
_METADATA_GONE = """
    DELETE FROM response_metadata WHERE n = (SELECT n FROM responses WHERE response_id = :response_id)
"""
_TOOLS_GONE = """
    DELETE FROM response_tools WHERE n = (SELECT n FROM responses WHERE response_id = :response_id)
"""
# The first response to use an item id keeps it: nobody takes over another's item by naming it again.
_NEW_ITEM = "INSERT INTO response_items VALUES (:item_id, :response_id, :output_index) ON CONFLICT DO NOTHING"

_NUMBER = "SELECT n FROM responses WHERE response_id = :response_id"
_ID = "SELECT response_id FROM responses WHERE n = :n"
_SPOKEN = """
    SELECT originator_id, originator_version, topic, state FROM stored_events
    WHERE originator_id = :response_id AND topic IN (:created, :closed, :committed, :failed)
    ORDER BY originator_version
"""
_SPOKEN_TOPICS = {
    "created": topic(ResponseCreated),
    "closed": topic(ItemClosed),
    "committed": topic(TurnCommitted),
    "failed": topic(TurnFailed),
}

RowChange = tuple[str, dict[str, Any]]
"""A statement and its parameters."""


def row_changes(recorded: Recorded) -> list[RowChange]:  # noqa: C901, PLR0911, PLR0912  # one case for each event
    """How the rows change when this event is stored, the text index aside.

    A stored `TurnCommitted` *is* persisted, so that is the state its row gets; the events that tell how
    its write went change nothing. A response whose content was removed keeps its row, but no items.
    """
    place = {"response_id": recorded.response_id, "last_version": recorded.version}
    match recorded.event:
        case ResponseCreated() as event:
            return _created(event, place)
        case GenerationStarted(at_ms=at_ms):
            return [(_STARTED_RESPONSE, {**place, "started_ms": at_ms})]
        case ItemOpened(item=item, output_index=output_index):
            opened = {**place, "item_id": item.id, "output_index": output_index}
            return [(_LONGER_RESPONSE, place), (_NEW_ITEM, opened)]
        case ItemClosed(item=FunctionCallItem() | CustomCallItem() as call, listed=True):
            return [(_LONGER_RESPONSE, place), *_called((call,), place)]
        case TurnCommitted() as event:
            return [(_ENDED_RESPONSE, _ended(event, place)), (_CONVERSATION_USED, place)]
        case TurnFailed() as event:
            return [(_ENDED_RESPONSE, _ended(event, place)), *_called(event.calls, place)]
        case MetadataChanged(metadata=metadata):
            return [(_LONGER_RESPONSE, place), (_METADATA_GONE, place), *_metadata(metadata, place)]
        case ResponseDeleted(at_ms=at_ms):
            return [(_DELETED_RESPONSE, {**place, "at_s": at_ms // 1000})]
        case ContentExpired(at_ms=at_ms):
            expired = {**place, "at_s": at_ms // 1000}
            return [(_EXPIRED_RESPONSE, expired), (_ITEMS_GONE, place), (_CONVERSATION_EXPIRED, place)]
        case SteerAccepted():
            return [(_STEERED, {**place, "more": 1})]
        case SteersCommitted(steer_ids=steer_ids) | SteersFailed(steer_ids=steer_ids):
            return [(_STEERED, {**place, "more": -len(steer_ids)})]
        case TurnRequeued() | ItemExtended() | ItemClosed() | ReasoningDropped():
            return [(_LONGER_RESPONSE, place)]
        case TurnPersisted() | PersistHardTimedOut():
            return [(_LONGER_RESPONSE, place)]
        case _ as unreachable:
            assert_never(unreachable)


def _created(event: ResponseCreated, place: dict[str, Any]) -> list[RowChange]:
    retry_digest: str | None = None
    body_digest: str | None = None
    history: bytes | None = None
    if event.expired_sha256 is None:
        retry_digest, body_digest = request_digests(event, counter=RETRY_COUNT)
        history = history_digest(event)
    # A replay of a conversation's first response belongs to the conversation.
    parent = event.previous_response_id or event.replay_of
    row = {
        **place,
        "previous_response_id": event.previous_response_id,
        "replay_of": event.replay_of,
        "parent": parent,
        "history_digest": history,
        "surface": event.surface,
        "owner": event.owner,
        "model": event.model,
        "created_ms": event.at_ms,
        "expires_at": event.expires_at,
        "limited": requested_retention_s(event) is not None,
        "retry_digest": retry_digest and bytes.fromhex(retry_digest),
        "body_digest": body_digest and bytes.fromhex(body_digest),
        "is_retry": event.retry_keys.get(RETRY_COUNT, "0") != "0",
    }
    changes = [(_NEW_RESPONSE, row), (_CONVERSATION, row)]
    if parent:
        changes += [
            (statement, place)
            for statement in (_CONVERSATIONS_JOIN, _JOINED_CONVERSATION_GONE, _CHILDREN_JOIN_CHAIN)
        ]
    return changes + _metadata(event.metadata, place)


def _metadata(metadata: dict[str, Any], place: dict[str, Any]) -> list[RowChange]:
    texts = metadata_texts(metadata).items()
    return [(_NEW_METADATA, {**place, "key": key, "value": value}) for key, value in texts]


def _ended(event: TurnCommitted | TurnFailed, place: dict[str, Any]) -> dict[str, Any]:
    usage = event.usage
    row = {
        **place,
        "ended_ms": event.at_ms,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    if isinstance(event, TurnCommitted):
        status = event.status
        return {**row, "state": "persisted", "status": status, "outcome": status, "reason": None}
    api_status = "cancelled" if event.reason == "cancelled" else "failed"
    return {**row, "state": "failed", "status": api_status, "outcome": None, "reason": event.reason}


def _called(calls: tuple[CallItem, ...], place: dict[str, Any]) -> list[RowChange]:
    # A name is blank when the content was removed.
    return [(_NEW_TOOL, {**place, "name": call.name}) for call in calls if call.name]


def record(cursor: SQLiteCursor, mapper: EventMapper, stored: StoredEvent) -> None:
    """Change the rows for an event that is being stored and, when it ends the turn, the text index.

    Raises:
        StorageError: the event cannot be read back from its bytes.
    """
    recorded = mapper.to_domain_event(stored)
    for statement, parameters in row_changes(recorded):
        cursor.execute(statement, parameters)
    if not isinstance(recorded.event, TurnCommitted | TurnFailed):
        return
    if response := _spoken(cursor, mapper, recorded.response_id):
        if digest := transcript_digest(response):
            cursor.execute(_TRANSCRIPT, {"response_id": response.id, "transcript_digest": digest})
        if text := searchable_text(response):
            textindex.add(cursor, _number(cursor, response.id), text)


def remove_content(cursor: SQLiteCursor, mapper: EventMapper, response_id: str) -> None:
    """Remove what the rows of an ended turn and the text index have of its content.

    The first step of its expiry, while the events still tell which text that is; again, it does nothing.

    Raises:
        StorageError: an event cannot be read, and the text stays in the index.
    """
    for statement in (_DIGESTS_GONE, _METADATA_GONE, _TOOLS_GONE):
        cursor.execute(statement, {"response_id": response_id})
    if found := _numbered_text(cursor, mapper, response_id):
        textindex.remove(cursor, *found)


def text_of(cursor: SQLiteCursor, mapper: EventMapper, n: int) -> str:
    """The searchable text of response number `n`; empty if it has none, or none any more.

    Raises:
        StorageError: an event cannot be read.
    """
    cursor.execute(_ID, {"n": n})
    return _text(cursor, mapper, cursor.fetchone()["response_id"])


def _numbered_text(cursor: SQLiteCursor, mapper: EventMapper, response_id: str) -> tuple[int, str] | None:
    """The response's number with its searchable text; None if it has none, or none any more."""
    text = _text(cursor, mapper, response_id)
    return (_number(cursor, response_id), text) if text else None


def _number(cursor: SQLiteCursor, response_id: str) -> int:
    cursor.execute(_NUMBER, {"response_id": response_id})
    return int(cursor.fetchone()["n"])


def _text(cursor: SQLiteCursor, mapper: EventMapper, response_id: str) -> str:
    response = _spoken(cursor, mapper, response_id)
    return searchable_text(response) if response else ""


def _spoken(cursor: SQLiteCursor, mapper: EventMapper, response_id: str) -> Response | None:
    """What was said in a response, without deltas; None if its content is gone."""
    cursor.execute(_SPOKEN, {"response_id": response_id, **_SPOKEN_TOPICS})
    story = [mapper.to_domain_event(StoredEvent(*row)).event for row in cursor.fetchall()]
    # The first event loses its content first, and with it the text leaves the index.
    if not story or story[0].expired_sha256 is not None:
        return None
    return fold(story)


def version(cursor: SQLiteCursor) -> int | None:
    """The version of the rows that are there; None if there are none yet."""
    cursor.execute("SELECT version FROM readmodel_version")
    row = cursor.fetchone()
    return row and int(row["version"])


def form(cursor: SQLiteCursor) -> int:
    """The form of the rows that are there, without what depends on Python's tables; 0 if there are none."""
    return (version(cursor) or 0) // 1000


def recreate(cursor: SQLiteCursor) -> None:
    """Drop the rows and the text index, and create their tables empty, in this version."""
    for statement in TABLES:
        cursor.execute(statement)
    textindex.create(cursor)
    cursor.execute("DELETE FROM readmodel_version")
    cursor.execute("INSERT INTO readmodel_version VALUES (:version)", {"version": VERSION})

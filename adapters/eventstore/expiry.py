"""Removes the content of expired and deleted responses, in small steps on the writer's thread (D-14)."""

# Statements are joined of the pieces in this file; whatever comes from outside is a parameter.
# ruff: noqa: S608

import json
import logging
from collections.abc import Callable, Set
from hashlib import sha256
from typing import Any, NamedTuple

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteCursor

from turnlog.adapters.eventstore import readmodel
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.recorder import EventRecorder
from turnlog.domain.errors import StorageError
from turnlog.domain.events import Recorded, ResponseEvent
from turnlog.domain.lifecycle import Lifecycle, Status
from turnlog.domain.redaction import without_content

log = logging.getLogger("turnlog")

_EVENTS_AT_A_TIME = 200

_SPARE = "(SELECT value FROM json_each(:spare))"
# Only a turn that has ended is deleted.
_DELETED = """
    SELECT response_id, last_version, state FROM responses INDEXED BY responses_deleted
    WHERE deleted_at IS NOT NULL AND NOT expired ORDER BY response_id LIMIT 1
"""
_DUE_BY_LIMIT = f"""
    SELECT response_id, last_version, state FROM responses INDEXED BY responses_limited
    WHERE limited AND NOT expired AND expires_at < :now_s AND state IN ('persisted', 'failed')
        AND response_id NOT IN {_SPARE}
    ORDER BY expires_at, response_id LIMIT 1
"""
# A turn that runs will keep its conversation when it is committed. A turn that failed, or was run again, may
# itself be kept longer than its conversation.
_DUE = f"""
    SELECT response_id, last_version, state
    FROM conversations INDEXED BY conversations_with_content
        CROSS JOIN responses INDEXED BY responses_with_content ON responses.chain = conversations.chain
    WHERE NOT conversations.expired AND conversations.expires_at < :now_s
        AND NOT limited AND NOT responses.expired AND responses.expires_at < :now_s
        AND state IN ('persisted', 'failed')
        AND conversations.chain NOT IN (SELECT chain FROM responses WHERE response_id IN {_SPARE})
    ORDER BY conversations.expires_at, conversations.chain, responses.expires_at, response_id LIMIT 1
"""
_WITH_CONTENT = """
    SELECT response_id, last_version, state FROM responses
    WHERE response_id = :response_id AND deleted_at IS NULL AND NOT expired
"""
_EVENTS = """
    SELECT originator_id, originator_version, topic, state FROM stored_events
    WHERE originator_id = :response_id AND originator_version > :after
    ORDER BY originator_version LIMIT :limit
"""
_REPLACE = """
    UPDATE stored_events SET state = :state
    WHERE originator_id = :response_id AND originator_version = :version
"""


class _Place(NamedTuple):
    """How far a response is done: its events up to `version` are."""

    response_id: str
    version: int
    state: str = ""


_NOWHERE = _Place("", 0)


class ContentSweep:
    """Goes through the deleted responses, for which somebody waits, then the expired ones, oldest first.

    A long response takes several steps; its last one appends `ContentExpired`. A sweep that was interrupted
    begins that response again, and what is done is left as it is.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._mapper = EventMapper()
        self._reached = _NOWHERE
        self._in_write_ahead_log = True  # of an earlier process, perhaps

    def step(self, now_s: int, *, spare: Set[str], limit: int) -> int:
        """Go through at most `limit` events in one transaction; 0 when there is nothing left.

        Args:
            spare: responses to leave alone.
        """
        done = 0
        reached, self._reached = self._reached, _NOWHERE
        with self._recorder.datastore.transaction(commit=True) as cursor:
            while done < limit and (due := self._due(cursor, now_s, spare)):
                after = reached.version if reached.response_id == due.response_id else 0
                reached = self._expire(cursor, due, after, now_s, limit - done)
                done += reached.version - after
        self._reached = reached
        # The pages that were replaced still stand in the write-ahead log.
        if done:
            self._in_write_ahead_log = True
        elif self._in_write_ahead_log:
            self._in_write_ahead_log = not self._recorder.empty_write_ahead_log()
        return done

    def delete(self, response_id: str, *, at_ms: int, asked_by: str) -> int:
        """Say that a response is deleted, in one transaction; how many were, 0 or 1.

        Raises:
            IllegalTransitionError: its turn has not ended.
        """
        return self._append(response_id, lambda life: life.delete(at_ms=at_ms, asked_by=asked_by))

    def change_metadata(self, response_id: str, metadata: dict[str, Any], *, at_ms: int) -> int:
        """Give a response other metadata, in one transaction; how many got it, 0 or 1.

        Raises:
            IllegalTransitionError: its turn has not ended.
        """
        return self._append(response_id, lambda life: life.change_metadata(metadata, at_ms=at_ms))

    def _append(self, response_id: str, command: Callable[[Lifecycle], ResponseEvent]) -> int:
        """Append what the command makes of a response that still has its content; 0 if there is none."""
        with self._recorder.datastore.transaction(commit=True) as cursor:
            cursor.execute(_WITH_CONTENT, {"response_id": response_id})
            if (row := cursor.fetchone()) is None:
                return 0
            place = _Place(*row)
            appended = Recorded(response_id, place.version + 1, command(Lifecycle(Status(place.state))))
            self._recorder.insert(cursor, [self._mapper.to_stored_event(appended)])
        return 1

    def empty(self, cursor: SQLiteCursor, response_id: str) -> None:
        """Remove all content that a response has so far, in the transaction of `cursor`."""
        before, reached = -1, 0
        while before < reached:
            before, reached = reached, self._empty(cursor, response_id, reached, _EVENTS_AT_A_TIME)

    def _due(self, cursor: SQLiteCursor, now_s: int, spare: Set[str]) -> _Place | None:
        """The response that is next, with the last version it has."""
        for statement in (_DELETED, _DUE_BY_LIMIT, _DUE):
            cursor.execute(statement, {"now_s": now_s, "spare": json.dumps(sorted(spare))})
            if row := cursor.fetchone():
                return _Place(*row)
        return None

    def _expire(self, cursor: SQLiteCursor, due: _Place, after: int, now_s: int, limit: int) -> _Place:
        """Go through the next events of a response, at most `limit`; how far it is done then."""
        reached = self._empty(cursor, due.response_id, after, limit)
        if reached == due.version:
            reached += 1
            event = Lifecycle(Status(due.state)).expire(at_ms=now_s * 1000)
            expired = Recorded(due.response_id, reached, event)
            self._recorder.insert(cursor, [self._mapper.to_stored_event(expired)])
        return _Place(due.response_id, reached)

    def _empty(self, cursor: SQLiteCursor, response_id: str, after: int, limit: int) -> int:
        """Remove the content of a response's next events, at most `limit`; the version of the last one."""
        cursor.execute(_EVENTS, {"response_id": response_id, "after": after, "limit": limit})
        rows = cursor.fetchall()
        if after == 0:
            self._remove_rows(cursor, response_id)
        for row in rows:
            self._remove_content(cursor, StoredEvent(*row))
        return after + len(rows)

    def _remove_rows(self, cursor: SQLiteCursor, response_id: str) -> None:
        """Let the response not be found by its content any more, while its events still tell what that is."""
        try:
            readmodel.remove_content(cursor, self._mapper, response_id)
        except StorageError:
            # Nobody finds it all the same, for it is marked as expired.
            log.exception("[store] could not remove an expired response from the text index")

    def _remove_content(self, cursor: SQLiteCursor, stored: StoredEvent) -> None:
        try:
            recorded = self._mapper.to_domain_event(stored)
        except StorageError:
            # Which of it is content cannot be told, and the other responses must not wait for it.
            log.exception("[store] could not remove the content of an expired event")
            return
        if recorded.event.expired_sha256:
            return
        event = without_content(recorded.event, sha256(stored.state).hexdigest())
        marker = self._mapper.to_stored_event(Recorded(recorded.response_id, recorded.version, event))
        place = {"response_id": marker.originator_id, "version": marker.originator_version}
        cursor.execute(_REPLACE, {**place, "state": marker.state})

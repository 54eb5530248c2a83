"""Reads the log on threads and connections of its own, so that a stuck write never blocks a read."""

import json
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteCursor

from turnlog.adapters.eventstore import audit, usage
from turnlog.adapters.eventstore.audit import FAMILY_LIMIT
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.interrupts import interruptible
from turnlog.adapters.eventstore.recorder import EventRecorder, storage_errors
from turnlog.adapters.eventstore.transfer import SqliteLogExport
from turnlog.adapters.owner_queue import OwnerQueue, check_wanted
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.audit.rows import AuditPage, AuditRow
from turnlog.domain.audit.usage import UsageKey, UsageSum
from turnlog.domain.budgets import Budget
from turnlog.domain.errors import ChainTooLargeError
from turnlog.domain.events import ItemClosed, ItemExtended, Recorded, topic
from turnlog.domain.items import Item

CLIENT_THREADS = 2
AUDIT_THREADS = 2
"""For reads of no owner's: of auditors, of operators and of the server itself."""

CLIENT_DEADLINE_S = 5.0
AUDIT_DEADLINE_S = 10.0

MOST_CHAIN_BYTES = 64 * 2**20
"""As stored, without deltas. In memory it is some times as much."""

# A cross join reads what is on its left first, so that the events of another's response are not touched.
_EVENTS = """
    SELECT originator_id, originator_version, topic, stored_events.state
    FROM responses CROSS JOIN stored_events ON originator_id = response_id
    WHERE response_id = :response_id AND coalesce(owner = :owner, TRUE)
    ORDER BY originator_version
"""
# The depth also ends a chain that runs in a circle.
_CHAIN = """
    WITH RECURSIVE chain (depth, response_id, previous_response_id) AS (
        SELECT 0, response_id, previous_response_id FROM responses JOIN expiries USING (response_id)
        WHERE response_id = :response_id AND NOT expired AND expiries.expires_at > :now_s
            AND coalesce(owner = :owner, TRUE)
        UNION ALL
        SELECT depth + 1, ancestor.response_id, ancestor.previous_response_id
        FROM chain JOIN responses AS ancestor ON ancestor.response_id = chain.previous_response_id
            JOIN expiries ON expiries.response_id = ancestor.response_id
        WHERE depth < :limit AND NOT ancestor.expired AND expiries.expires_at > :now_s
            AND coalesce(ancestor.owner = :owner, TRUE)
    )
    SELECT depth, originator_id, originator_version, topic, state
    FROM chain JOIN stored_events ON originator_id = response_id
    WHERE topic <> :deltas
    ORDER BY depth DESC, originator_version
"""
_DATED = """
    SELECT originator_id, originator_version, topic, stored_events.state, expiries.expires_at AS expires
    FROM responses JOIN expiries USING (response_id) CROSS JOIN stored_events ON originator_id = response_id
    WHERE response_id = :response_id AND coalesce(owner = :owner, TRUE)
    ORDER BY originator_version
"""
_EXPIRY = """
    SELECT expiries.expires_at FROM responses JOIN expiries USING (response_id)
    WHERE response_id = :response_id AND coalesce(owner = :owner, TRUE)
"""
# The ids come as one JSON list: a statement has room for so many parameters only.
_ITEMS = """
    SELECT originator_id, originator_version, topic, state
    FROM stored_events
    WHERE topic = :closed AND originator_id IN (
        SELECT items.response_id
        FROM response_items AS items JOIN responses USING (response_id) JOIN expiries USING (response_id)
        WHERE item_id IN (SELECT value FROM json_each(:item_ids)) AND expiries.expires_at > :now_s
            AND coalesce(owner = :owner, TRUE)
    )
"""
_LATEST_UNDER_KEY = """
    SELECT response_id FROM responses
    WHERE retry_digest = :key_digest AND created_ms >= :since_ms AND reason IS NULL
    ORDER BY created_ms DESC, n DESC LIMIT 1
"""
_UNFINISHED = """
    SELECT response_id, created_ms, n FROM responses WHERE status IN ('queued', 'in_progress')
    UNION SELECT response_id, created_ms, n FROM responses WHERE owed_steers > 0
    ORDER BY created_ms, n
"""

_Result = TypeVar("_Result")


class SqliteEventReader:
    """The `EventReader`, `AuditReader` and `LogExporter` of a SQLite store.

    Futures are resolved on the reader threads. Owners and auditors never wait for each other.

    Args:
        deadlines: whether a read that takes long is given up, so that others have their turn.
    """

    def __init__(self, recorder: EventRecorder, *, deadlines: bool = True) -> None:
        self._recorder = recorder
        self._mapper = EventMapper()
        self._path = recorder.datastore.path
        self._opened_file = _file_at(self._path)
        self._clients = OwnerQueue("client_read", CLIENT_THREADS, CLIENT_DEADLINE_S if deadlines else None)
        self._auditors = OwnerQueue("audit_read", AUDIT_THREADS, AUDIT_DEADLINE_S if deadlines else None)
        self._chain_bytes = Budget("chain_bytes", MOST_CHAIN_BYTES)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """What reading is bounded by."""
        queues = (self._clients, self._auditors)
        return *(each for queue in queues for each in (queue.threads, queue.seconds)), self._chain_bytes

    def events(self, response_id: str, *, owner: str | None = None) -> Future[list[Recorded]]:
        """All events of a response in order; empty if there is no such response."""

        def read() -> list[Recorded]:
            rows = self._select(_EVENTS, response_id=response_id, owner=owner)
            return [self._event(row) for row in rows]

        return self._submit(read, owner)

    def dated(self, response_id: str, *, owner: str | None = None) -> Future[tuple[list[Recorded], int]]:
        """All events of a response with the time at which it expires; see `EventReader.dated`."""

        def read() -> tuple[list[Recorded], int]:
            rows = self._select(_DATED, response_id=response_id, owner=owner)
            events = [self._event(place) for *place, _ in rows]
            return events, rows[0]["expires"] if rows else 0

        return self._submit(read, owner)

    def expiry(self, response_id: str, *, owner: str | None = None) -> Future[int]:
        """When a response expires; see `EventReader.expiry`."""

        def read() -> int:
            rows = self._select(_EXPIRY, response_id=response_id, owner=owner)
            return rows[0]["expires_at"] if rows else 0

        return self._submit(read, owner)

    def chain(
        self, response_id: str, *, limit: int, now_s: int = 0, owner: str | None = None
    ) -> Future[list[list[Recorded]]]:
        """The events of a response and at most `limit` ancestors, oldest response first, without deltas."""

        def read() -> list[list[Recorded]]:
            deltas = topic(ItemExtended)
            wanted = {
                "response_id": response_id,
                "limit": limit,
                "now_s": now_s,
                "owner": owner,
                "deltas": deltas,
            }
            rows, left_bytes = [], self._chain_bytes.limit
            with self._reading() as cursor:
                cursor.execute(_CHAIN, wanted)
                while row := cursor.fetchone():
                    rows.append(row)
                    left_bytes -= len(row["state"])
                    if left_bytes < 0:
                        self._chain_bytes.reach()
                        raise ChainTooLargeError(response_id, MOST_CHAIN_BYTES)
            return [
                [self._event(place) for _, *place in turn]
                for _, turn in groupby(rows, key=lambda row: row["depth"])
            ]

        return self._submit(read, owner)

    def items(self, item_ids: Set[str], *, now_s: int, owner: str | None = None) -> Future[dict[str, Item]]:
        """The output items of those ids, as far as they can be seen; see `EventReader.items`."""

        def read() -> dict[str, Item]:
            wanted = json.dumps(sorted(item_ids))
            closed_topic = topic(ItemClosed)
            rows = self._select(_ITEMS, item_ids=wanted, now_s=now_s, owner=owner, closed=closed_topic)
            closed = (self._event(row).event for row in rows)
            items = (event.item for event in closed if isinstance(event, ItemClosed))
            return {item.id: item for item in items if item.id in item_ids}

        return self._submit(read, owner)

    def latest_under_key(self, key_digest: str, *, since_ms: int) -> Future[str | None]:
        """The newest response under an idempotency key that has not failed; see `AuditReader`."""

        def read() -> str | None:
            rows = self._select(_LATEST_UNDER_KEY, key_digest=bytes.fromhex(key_digest), since_ms=since_ms)
            return rows[0]["response_id"] if rows else None

        return self._submit(read, key_digest)  # which belongs to one owner

    def find(self, wanted: AuditFilter, *, asked_by: str | None = None) -> Future[AuditPage]:
        """One page of the responses that meet every condition; see `AuditReader.find`."""
        return self._look_up(audit.page, self._mapper, wanted, asked_by=asked_by)

    def row(self, response_id: str, *, owner: str | None = None) -> Future[AuditRow | None]:
        """The row of one response; None if it is not there."""
        return self._look_up(audit.row, response_id, owner)

    def family(
        self, response_id: str, *, owner: str | None = None, limit: int = FAMILY_LIMIT
    ) -> Future[list[AuditRow]]:
        """All responses of the conversation that this one is part of; see `AuditReader.family`."""
        return self._look_up(audit.family, response_id, owner, limit)

    def replays_of(self, response_id: str, *, owner: str | None = None) -> Future[list[AuditRow]]:
        """The responses that run this one again, oldest first."""
        return self._look_up(audit.replays_of, response_id, owner)

    def attempts_of(self, response_id: str, *, owner: str | None = None) -> Future[list[AuditRow]]:
        """What the client sent again after a failure; see `AuditReader.attempts_of`."""
        return self._look_up(audit.attempts_of, response_id, owner)

    def usage(
        self, by: Sequence[UsageKey], *, since_ms: int | None = None, until_ms: int | None = None
    ) -> Future[list[UsageSum]]:
        """Sums of turns and tokens; see `AuditReader.usage`."""
        return self._look_up(usage.sums, by, since_ms, until_ms)

    def ids_beginning(self, prefix: str, *, limit: int) -> Future[list[str]]:
        """The ids of responses that begin with `prefix`, at most `limit`, in order."""
        return self._look_up(audit.ids_beginning, prefix, limit)

    def export(
        self,
        *,
        after: int = 0,
        since_ms: int | None = None,
        until_ms: int | None = None,
        owner: str | None = None,
    ) -> SqliteLogExport:
        """Begin a pass over the log on the caller's thread; see `LogExporter.export`."""
        return SqliteLogExport(self._recorder, after=after, since_ms=since_ms, until_ms=until_ms, owner=owner)

    def unfinished(self) -> Future[list[str]]:
        """See `EventReader.unfinished`."""
        return self._submit(lambda: [row["response_id"] for row in self._select(_UNFINISHED)])

    def ping(self) -> Future[None]:
        """Resolved once the store has answered."""

        def read() -> None:
            self._select("SELECT 1 FROM responses LIMIT 1")

        return self._submit(read, "")  # nobody's name, and so behind nobody's reads

    def same_file(self) -> bool:
        """Whether the store's file is still the one that was opened; always, for one in memory."""
        return _file_at(self._path) == self._opened_file

    def interrupt(self) -> None:
        """End the reads that wait and run, with `ShuttingDownError`; later ones are served."""
        for queue in (self._clients, self._auditors):
            queue.interrupt()

    def close(self) -> None:
        """Finish what was asked, then stop the threads and close the file."""
        for queue in (self._clients, self._auditors):
            queue.close()
        # In memory the journal has the same datastore, and closes it when it has written.
        if self._recorder.datastore.read_only:
            self._recorder.datastore.close()

    def _look_up(
        self, look_up: Callable[..., _Result], *asked: Any, asked_by: str | None = None
    ) -> Future[_Result]:
        def read() -> _Result:
            with self._reading() as cursor:
                return look_up(cursor, *asked)

        return self._submit(read, asked_by)

    def _submit(self, read: Callable[[], _Result], owner: str | None = None) -> Future[_Result]:
        def guarded() -> _Result:
            with storage_errors("The event store could not be read"):
                return read()

        # Reads of no owner's have no turns to take among each other: each is an owner of its own.
        return (
            self._auditors.submit(object(), guarded)
            if owner is None
            else self._clients.submit(owner, guarded)
        )

    def _event(self, row: Any) -> Recorded:
        check_wanted()
        return self._mapper.to_domain_event(StoredEvent(*row))

    @contextmanager
    def _reading(self) -> Iterator[SQLiteCursor]:
        """A transaction that ends when nobody wants the read any more."""
        with (
            self._recorder.datastore.transaction(commit=False) as cursor,
            interruptible(cursor.sqlite_cursor.connection),
        ):
            yield cursor

    def _select(self, statement: str, **parameters: Any) -> list[Any]:
        with self._reading() as cursor:
            cursor.execute(statement, parameters)
            rows: list[Any] = cursor.fetchall()
            return rows


def _file_at(path: Path | None) -> tuple[int, int] | None:
    """What tells the file at the path from every other: its device and inode. None if there is no file."""
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return status and (status.st_dev, status.st_ino)

"""Writes the log: one thread that takes what is queued and stores it in one transaction.

Nothing is called failed before the log was read back, and nothing is called stored before it is durable.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

from eventsourcing.persistence import StoredEvent
from msgspec import Struct, field

from turnlog.adapters.eventstore.backup import copy
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.expiry import ContentSweep
from turnlog.adapters.eventstore.recorder import LOCK_TIMEOUT_S, EventRecorder, storage_errors
from turnlog.adapters.eventstore.refusals import RefusedAppends, settled_failure
from turnlog.domain.errors import StorageError, StorageRefusedError
from turnlog.domain.events import Recorded

log = logging.getLogger("turnlog")

EVENTS_PER_TRANSACTION = 500
"""Inserts hold the interpreter; more of them at a time would be felt by the streams."""

MAX_QUEUED_BYTES = 64 * 2**20
EVENTS_PER_STEP = 200
"""Of the sweep: about ten milliseconds, in which nothing else is written."""

APPEND_BYTES = 1700
EVENT_BYTES = 300
"""What a queued append takes, and each of its events, besides their states. Measured."""

RETRY_PAUSE_S = 0.05
"""Between two tries, on top of the time the store itself waits for a lock."""

CLOSE_GRACE_S = 10.0
"""How long closing waits while the store takes nothing of what is queued."""


class _Append(Struct, eq=False):
    stored: list[StoredEvent]
    done: Future[None] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)

    @property
    def size_bytes(self) -> int:
        return APPEND_BYTES + sum(len(stored.state) + EVENT_BYTES for stored in self.stored)


class _Step(Struct, eq=False):
    """A transaction that removes something, or says that it is to be. It waits its turn among the appends."""

    take: Callable[[], int]
    done: Future[int] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    size_bytes: int = 0


class _Backup(Struct, eq=False):
    """A copy of the store that is to be made."""

    target: Path
    done: Future[int] = field(default_factory=Future)


class _GaveUpError(Exception):
    """The journal was closed and its grace period is over."""


class SqliteEventJournal:
    """The `EventJournal` of a SQLite store, its `JournalLoad`, `ContentEraser` and `MetadataWriter`.

    Futures are resolved on the writer thread.

    Args:
        max_queued_bytes: from here on `accepts_new` is false; what is appended all the same is kept.
        close_grace_s: how long `close` waits for a store that is locked or stuck to take one more write.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        *,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        close_grace_s: float = CLOSE_GRACE_S,
    ) -> None:
        self._recorder = recorder
        self._mapper = EventMapper()
        self._sweep = ContentSweep(recorder)
        self._refused = RefusedAppends()
        # What has not settled, in order; what is being written stays in it until it has.
        self._queue: deque[_Append | _Step] = deque()
        self._backups: deque[_Backup] = deque()
        self._queued_bytes = 0
        self._max_queued_bytes = max_queued_bytes
        self._closing = False
        self._close_grace_s = close_grace_s
        self._give_up = Event()
        self._unsettled = False  # whether the write under way is known to take its time
        self._changed = Condition()
        self._writer = Thread(target=self._run, name="event-writer", daemon=True)
        self._writer.start()

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Store all of `events` or none; see `EventJournal.append`. Any thread; returns at once.

        The future cannot be cancelled: who stops waiting does not undo what was handed over.
        """
        try:
            append = _Append([self._mapper.to_stored_event(recorded) for recorded in events])
        except StorageError as error:
            unwritable: Future[None] = Future()
            unwritable.set_exception(error)
            return unwritable
        self._enqueue(append)
        return append.done

    def expire(
        self, now_s: int, *, spare: Set[str] = frozenset(), limit: int = EVENTS_PER_STEP
    ) -> Future[int]:
        """Take one step of the sweep behind what is queued; see `ContentExpirer.expire`."""
        step = _Step(partial(self._sweep.step, now_s, spare=spare, limit=limit))
        self._enqueue(step)
        return step.done

    def delete(self, response_id: str, *, at_ms: int, asked_by: str) -> Future[int]:
        """Delete a response behind what is queued; see `ContentEraser.delete`."""
        step = _Step(partial(self._sweep.delete, response_id, at_ms=at_ms, asked_by=asked_by))
        self._enqueue(step)
        return step.done

    def change_metadata(self, response_id: str, metadata: dict[str, Any], *, at_ms: int) -> Future[int]:
        """Change metadata behind what is queued; see `MetadataWriter.change_metadata`."""
        step = _Step(partial(self._sweep.change_metadata, response_id, metadata, at_ms=at_ms))
        self._enqueue(step)
        return step.done

    def backup(self, target: Path) -> Future[int]:
        """Copy the log to a new file between appends; see `LogCopier.backup`."""
        backup = _Backup(target)
        backup.done.set_running_or_notify_cancel()
        with self._changed:
            if not self._closing:
                self._backups.append(backup)
                self._changed.notify()
                return backup.done
        backup.done.set_exception(StorageError("The event store is closed."))
        return backup.done

    @property
    def accepts_new(self) -> bool:
        """Whether less is queued than the bound allows."""
        return self._queued_bytes < self._max_queued_bytes

    @property
    def queued_bytes(self) -> int:
        """How much memory the appends that have not settled take, roughly."""
        return self._queued_bytes

    def oldest_queued_s(self) -> float:
        """How long what is written next, or now, has waited; 0 when nothing is queued."""
        oldest = self._oldest()
        return time.monotonic() - oldest.since if oldest else 0.0

    def close(self) -> None:
        """Write what is queued, then stop and close the file.

        That may take a while, but once nothing has settled for `close_grace_s` what is left fails with
        a `StorageError`. What was being written then may be found in the log all the same.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        stuck = None
        while (oldest := self._oldest()) is not stuck:
            stuck = oldest
            self._writer.join(self._close_grace_s)
        self._give_up.set()
        self._writer.join(LOCK_TIMEOUT_S + 1)
        with self._changed:
            left = list(self._queue)
        if left:
            log.error("[store] closed with %d unsettled writes", len(left))
        for task in left:
            if self._leaves(task):
                task.done.set_exception(
                    StorageError("The event store was closed before the events were written.")
                )
        # A writer that hangs in the store still uses the connection; the process takes both with it.
        if not self._writer.is_alive():
            self._recorder.datastore.close()

    def _oldest(self) -> _Append | _Step | None:
        with self._changed:
            return self._queue[0] if self._queue else None

    def _enqueue(self, task: _Append | _Step) -> None:
        task.done.set_running_or_notify_cancel()
        with self._changed:
            if not self._closing:
                self._queue.append(task)
                self._queued_bytes += task.size_bytes
                self._changed.notify()
                return
        task.done.set_exception(StorageError("The event store is closed."))

    def _run(self) -> None:
        with suppress(_GaveUpError):
            while batch := self._next():
                if isinstance(batch, _Backup):
                    self._copy(batch)
                else:
                    self._work(batch)

    def _next(self) -> list[_Append] | _Step | _Backup | None:
        """What is written next, or a copy to be made; None when the journal is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._backups or self._closing)
            return self._backups.popleft() if self._backups else self._queued()

    def _queued(self) -> list[_Append] | _Step | None:
        """The next appends for one transaction, or a step of the sweep; None if nothing is queued."""
        with self._changed:
            batch: list[_Append] = []
            room = EVENTS_PER_TRANSACTION
            for task in self._queue:
                if isinstance(task, _Step):
                    return batch or task
                if batch and len(task.stored) > room:
                    break
                batch.append(task)
                room -= len(task.stored)
            return batch or None

    def _copy(self, backup: _Backup) -> None:
        """Make a copy, and write what is queued meanwhile."""

        def write() -> None:
            if self._closing:
                raise StorageError("The backup was broken off: the event store was closed.")
            if batch := self._queued():
                self._work(batch)

        try:
            with self._recorder.datastore.get_connection(commit=True) as connection:
                source = connection.cursor().sqlite_cursor.connection
            # Only this thread uses it, which is the one that writes in between.
            backup.done.set_result(copy(source, backup.target, write))
        except Exception as error:
            backup.done.set_exception(error)

    def _work(self, batch: list[_Append] | _Step) -> None:
        """See the batch through: in one transaction or, where that is refused, each append in its own."""
        self._unsettled = False
        if isinstance(batch, _Step):
            self._take(batch)
        elif len(batch) > 1 and self._store(batch):
            for append in batch:
                self._settle(append)
        else:
            for append in batch:
                self._settle(append, self._failure(append))

    def _store(self, batch: list[_Append]) -> bool:
        """Store the batch in one transaction; false if one of its appends is refused, or may be."""
        if any(self._refused.reason(append.stored) for append in batch):
            return False
        return self._insert([stored for append in batch for stored in append.stored]) is None

    def _failure(self, append: _Append) -> StorageError | None:
        """Why the append is not stored; None once it is."""
        if reason := self._refused.reason(append.stored):
            return reason
        while failure := self._insert(append.stored):
            # An earlier try of it may have landed though it was reported as failed.
            try:
                return None if self._is_stored(append) else failure
            except StorageError as unreadable:
                if isinstance(failure, StorageRefusedError) and failure.reason == "corrupt":
                    return failure
                self._pause(unreadable)
        return None

    def _insert(self, stored: list[StoredEvent]) -> StorageError | None:
        """Insert the events, as often as it takes to know; why they are refused, or None.

        Trying again is safe: what did land is refused then, for its places are taken.
        """
        while True:
            try:
                self._recorder.insert_events(stored)
            # Whatever it is: those who wait must hear of it, and the writer must live.
            except Exception as error:
                if failure := settled_failure(error):
                    return failure
                self._pause(error)
            else:
                return None

    def _is_stored(self, append: _Append) -> bool:
        """Whether the very bytes of the append are in the log, each in its place."""
        with storage_errors("The events could not be read back"):
            return all(
                [stored]
                == self._recorder.select_events(
                    stored.originator_id, gt=stored.originator_version - 1, lte=stored.originator_version
                )
                for stored in append.stored
            )

    def _pause(self, error: Exception) -> None:
        """Wait a moment before the next try.

        Raises:
            _GaveUpError: the journal was closed and nobody waits any more.
        """
        if not self._unsettled:
            log.warning("[store] retrying an unsettled write: %s", error)
            self._unsettled = True
        if self._give_up.wait(RETRY_PAUSE_S):
            raise _GaveUpError

    def _take(self, step: _Step) -> None:
        try:
            with storage_errors("Expired content could not be removed"):
                changed = step.take()
        except Exception as error:
            if self._leaves(step):
                step.done.set_exception(error)
        else:
            if self._leaves(step):
                step.done.set_result(changed)

    def _settle(self, append: _Append, failure: StorageError | None = None) -> None:
        """Let the append leave the queue and tell who waits for it."""
        if not self._leaves(append):
            return
        if failure:
            self._refused.remember(append.stored, failure)
            append.done.set_exception(failure)
        else:
            self._refused.forget(append.stored)
            append.done.set_result(None)

    def _leaves(self, task: _Append | _Step) -> bool:
        """Take the task out of the queue; false if it was given up when the journal was closed."""
        with self._changed:
            if not self._queue or self._queue[0] is not task:
                return False
            self._queue.popleft()
            self._queued_bytes -= task.size_bytes
            return True

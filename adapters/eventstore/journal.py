"""Writes the log: one thread that takes what is queued and stores it in one transaction."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Condition, Thread

from eventsourcing.persistence import IntegrityError, StoredEvent
from msgspec import Struct

from adapters.eventstore.codec import EventMapper
from adapters.eventstore.sqlite import EventRecorder, storage_errors
from domain.errors import StorageError
from domain.events import Recorded

EVENTS_PER_TRANSACTION = 500
"""Inserts hold the interpreter; more of them at a time would be felt by the streams."""


class _Append(Struct):
    stored: list[StoredEvent]
    done: Future[None]


class SqliteEventJournal:
    """The `EventJournal` of a SQLite store. Its futures are resolved on the writer thread.

    An append that failed leaves no gap: the next one of its response does not follow the last version
    stored, and fails too.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._mapper = EventMapper()
        self._queue: deque[_Append] = deque()
        self._closing = False
        self._changed = Condition()
        self._writer = Thread(target=self._run, name="event-writer", daemon=True)
        self._writer.start()

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Store all of `events` or none. Any thread; returns at once.

        The future cannot be cancelled: who stops waiting does not undo what was handed over.
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()
        try:
            stored = [self._mapper.to_stored_event(recorded) for recorded in events]
        except StorageError as error:
            done.set_exception(error)
            return done
        with self._changed:
            if self._closing:
                done.set_exception(StorageError("The event store is closed."))
            else:
                self._queue.append(_Append(stored, done))
                self._changed.notify()
        return done

    def close(self) -> None:
        """Write what is queued, then stop and close the file."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._writer.join()
        self._recorder.datastore.close()

    def _run(self) -> None:
        while batch := self._take():
            self._store(batch)

    def _take(self) -> list[_Append]:
        """The next appends for one transaction, waiting for the first; none when the journal is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            batch: list[_Append] = []
            room = EVENTS_PER_TRANSACTION
            while self._queue and (not batch or len(self._queue[0].stored) <= room):
                batch.append(self._queue.popleft())
                room -= len(batch[-1].stored)
            return batch

    def _store(self, batch: list[_Append]) -> None:
        """Store the batch in one transaction or, where one of several is refused, each in its own."""
        try:
            with storage_errors("The events could not be stored"):
                self._recorder.insert_events([stored for append in batch for stored in append.stored])
        # Whatever it is: those who wait must hear of it, and the writer must live.
        except Exception as error:
            if len(batch) > 1 and isinstance(error.__cause__, IntegrityError):
                for append in batch:
                    self._store([append])
                return
            for append in batch:
                append.done.set_exception(error)
        else:
            for append in batch:
                append.done.set_result(None)

"""Brings an exported log into an empty store: all of it, or nothing."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
from eventsourcing.persistence import IntegrityError
from eventsourcing.sqlite import SQLiteCursor

from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.sqlite import EventDatastore, EventRecorder, storage_errors
from turnlog.adapters.eventstore.transfer import FORMAT_VERSION, EndLine, EventLine, Header, Line
from turnlog.domain.errors import StorageError
from turnlog.domain.events import ResponseCreated

EVENTS_PER_REPORT = 5_000
"""How often an import tells how far it is."""


def import_events(path: Path, lines: Iterable[bytes], progress: Callable[[int], None] | None = None) -> int:
    """Store the events of an export, in their order and with their read model; how many there were.

    Several passes may follow each other, if each begins where the one before it got to.

    Args:
        path: the store; it is made if there is none.
        lines: the export, line by line.
        progress: told how many events are read so far, now and then.

    Raises:
        StorageError: the store has events already or is in use, or a line is not as it must be, which is
            named. Nothing has been stored.
    """
    failure = f"The events could not be imported into '{path}'"
    with closing(StoreLock(path)), storage_errors(failure), ExitStack() as undo:
        datastore = EventDatastore(path)
        undo.callback(datastore.close)
        recorder = EventRecorder(datastore)
        recorder.create_table()
        with datastore.transaction(commit=True) as cursor:
            _refuse_events(cursor, path)
            return _Import(recorder, cursor, progress or (lambda _: None)).take(lines)


def _refuse_events(cursor: SQLiteCursor, path: Path) -> None:
    cursor.execute("SELECT 1 FROM stored_events LIMIT 1")
    if cursor.fetchone():
        raise StorageError(f"The event store '{path}' has events already. Import into a new one.")


class _Import:
    """What is known of an import after each line: how far it got, and whether a pass is complete."""

    def __init__(
        self, recorder: EventRecorder, cursor: SQLiteCursor, progress: Callable[[int], None]
    ) -> None:
        self._recorder = recorder
        self._cursor = cursor
        self._progress = progress
        self._mapper = EventMapper()
        self._decode = msgspec.json.Decoder(Line).decode
        self._events = 0
        self._events_before_pass = 0
        self._position = 0
        self._in_pass = False

    def take(self, lines: Iterable[bytes]) -> int:
        """Store all events of the lines; how many there were.

        Raises:
            StorageError: a line is not as it must be.
        """
        number = 0
        for number, line in enumerate(lines, start=1):
            try:
                self._take(line)
            except (ValueError, IntegrityError, StorageError, msgspec.MsgspecError) as error:
                cut = "" if line.endswith(b"\n") else "it is cut off; "
                raise StorageError(f"Line {number} cannot be imported: {cut}{error}") from error
        if self._in_pass or not number:
            raise StorageError(f"The export is not complete: it was cut off after line {number}.")
        self._progress(self._events)
        return self._events

    def _take(self, line: bytes) -> None:
        match self._decode(line):
            case Header() as header:
                self._begin(header)
            case _ if not self._in_pass:
                raise ValueError("there is no header before it")
            case EventLine() as event:
                self._store(event)
            case EndLine() as end:
                self._end(end)

    def _begin(self, header: Header) -> None:
        if header.format_version != FORMAT_VERSION:
            raise ValueError(f"its format has version {header.format_version}, known is {FORMAT_VERSION}")
        if self._position and header.after != self._position:
            raise ValueError(f"it goes on after position {header.after}, but {self._position} was reached")
        self._in_pass = True
        self._events_before_pass = self._events
        self._position = header.after

    def _store(self, line: EventLine) -> None:
        if line.position <= self._position:
            raise ValueError(f"position {line.position} does not come after {self._position}")
        stored = line.stored
        event = self._mapper.to_domain_event(stored).event
        begins = isinstance(event, ResponseCreated) and event.response_id == line.response_id
        if begins != (line.version == 1):
            raise ValueError("a response begins with its own creation and has no other")
        self._recorder._insert_events(self._cursor, [stored])
        self._position = line.position
        self._events += 1
        if self._events % EVENTS_PER_REPORT == 0:
            self._progress(self._events)

    def _end(self, end: EndLine) -> None:
        events = self._events - self._events_before_pass
        if end.events != events:
            raise ValueError(f"{end.events} events were exported, but {events} are here")
        self._in_pass = False
        self._position = max(self._position, end.position)

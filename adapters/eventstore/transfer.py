"""The log as a file of JSON lines: exported from one store and imported into another, with identical bytes.

A pass is a header, one line per event and an end line; without the end line it was cut off. An event's state
is JSON and stands in its line as it is stored; a damaged state that is not JSON stands there as base64.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from eventsourcing.persistence import IntegrityError, Notification, StoredEvent
from eventsourcing.sqlite import SQLiteCursor
from msgspec import UNSET, Raw, Struct, UnsetType

from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.expiry import ContentSweep
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.recorder import EventDatastore, EventRecorder, storage_errors
from turnlog.domain.errors import IllegalTransitionError, StorageError
from turnlog.domain.events import ContentExpired
from turnlog.domain.written import Writing

FORMAT_VERSION = 1

EVENTS_PER_REPORT = 5_000
"""How many events an import stores between two reports of its progress."""

_STEP_BYTES = 64 * 1024
_EXPORT_FAILED = "The events could not be exported"


class Header(Struct, frozen=True, kw_only=True, tag_field="line", tag="header"):
    """The first line: which events follow. `after` is the position behind which the pass begins.

    With `owner` they are those of the owner's responses.
    """

    format: Literal["turnlog.log"]
    format_version: int
    after: int = 0
    since_ms: int | None = None
    until_ms: int | None = None
    owner: str | UnsetType = UNSET


class EventLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="event"):
    """One event: its place in the log and in its response, and its state, verbatim or as base64."""

    position: int
    response_id: str
    version: int
    topic: str
    event: Raw = Raw()
    base64: str | None = None

    @property
    def stored(self) -> StoredEvent:
        """The event as a store keeps it.

        Raises:
            ValueError: the line has no state, or one that is not base64.
        """
        state = bytes(self.event)
        if self.base64 is not None:
            state = b64decode(self.base64, validate=True)
        if not state:
            raise ValueError("the event is missing")
        return StoredEvent(self.response_id, self.version, self.topic, state)


class EndLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line: how many events the pass has, and the position behind which the next one begins."""

    events: int
    position: int


Line = Header | EventLine | EndLine


class _Time(Struct):
    at_ms: int


class SqliteLogExport:
    """A `LogExport` up to the event that is the newest when the pass begins; appends go on meanwhile.

    Args:
        after: the position behind which it begins.
        since_ms, until_ms: only events from the first and before the second time are exported.
        owner: only events of their responses are exported; None for everybody's.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        *,
        after: int,
        since_ms: int | None,
        until_ms: int | None,
        owner: str | None = None,
    ) -> None:
        self._recorder = recorder
        self._header = Header(
            format="turnlog.log",
            format_version=FORMAT_VERSION,
            after=after,
            since_ms=since_ms,
            until_ms=until_ms,
            owner=UNSET if owner is None else owner,
        )
        self._decode_time = msgspec.json.Decoder(_Time).decode
        with storage_errors(_EXPORT_FAILED):
            self._last = recorder.last_position()
            self._responses = None if owner is None else _responses_of(recorder, owner)
        self.total = max(self._last - after, 0)
        self.done = 0
        self.position = after

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of whole lines: a header, events, an end line."""
        yield _line(self._header)
        exported = 0
        with storage_errors(_EXPORT_FAILED):
            for chunk in self._recorder.log(after=self.position, until=self._last):
                lines = [_event_line(stored) for stored in chunk if self._includes(stored)]
                exported += len(lines)
                self.done += len(chunk)
                self.position = chunk[-1].id
                if lines:
                    yield b"".join(lines)
        yield _line(EndLine(events=exported, position=self.position))

    def _includes(self, stored: Notification) -> bool:
        """Whether an event is of the time asked for; a damaged one always is: an auditor must not miss it."""
        if self._responses is not None and str(stored.originator_id) not in self._responses:
            return False
        since_ms, until_ms = self._header.since_ms, self._header.until_ms
        if since_ms is None and until_ms is None:
            return True
        try:
            at_ms = self._decode_time(stored.state).at_ms
        except msgspec.MsgspecError:
            return True
        return (since_ms is None or at_ms >= since_ms) and (until_ms is None or at_ms < until_ms)


def _responses_of(recorder: EventRecorder, owner: str) -> set[str]:
    """The ids of an owner's responses."""
    with recorder.datastore.transaction(commit=False) as cursor:
        cursor.execute("SELECT response_id FROM responses WHERE owner = :owner", {"owner": owner})
        return {row["response_id"] for row in cursor.fetchall()}


_encode = msgspec.json.Encoder().encode
_as_json = msgspec.json.Decoder(Raw).decode


def _line(line: Header | EndLine) -> bytes:
    return _encode(line) + b"\n"


def _event_line(stored: Notification) -> bytes:
    head = b'{"line":"event","position":%d,"response_id":%b,"version":%d,"topic":%b,' % (
        stored.id,
        _encode(stored.originator_id),
        stored.originator_version,
        _encode(stored.topic),
    )
    if _is_verbatim(stored.state):
        return b'%b"event":%b}\n' % (head, stored.state)
    return b'%b"base64":"%b"}\n' % (head, b64encode(stored.state))


def _is_verbatim(state: bytes) -> bool:
    """Whether the state comes back as it is from a line of JSON that it stands in."""
    try:
        state.decode()
        return b"\n" not in state and bytes(_as_json(state)) == state
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


class Reached(Struct, frozen=True):
    """How far an export in a file has got: up to which position, and of which times.

    `whole_bytes` is the length of the file without a line that was cut off. `complete` says whether its last
    pass has its end line.
    """

    position: int
    complete: bool
    whole_bytes: int
    since_ms: int | None
    until_ms: int | None
    owner: str | None = None


def reached(path: Path) -> Reached:
    """How far the export in the file has got, so that it can be resumed, also after it was cut off.

    Raises:
        StorageError: the file is not an export, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = _decoded(path, file.readline())
            if not isinstance(header, Header):
                raise _not_an_export(path)
            whole_bytes, last = _last_whole_line(file)
    except OSError as error:
        raise StorageError(f"'{path}' could not be read: {error}") from error
    line = _decoded(path, last)
    position = line.after if isinstance(line, Header) else line.position
    complete = isinstance(line, EndLine)
    owner = None if header.owner is UNSET else header.owner
    return Reached(position, complete, whole_bytes, header.since_ms, header.until_ms, owner)


def _last_whole_line(file: BinaryIO) -> tuple[int, bytes]:
    """The bytes up to the end of the last whole line, and that line. The first line must be whole."""
    end = file.seek(0, 2)
    tail, start = b"", end
    # Backwards, for an export may have gigabytes; until there is a line with another one before it.
    while start and tail[: tail.rfind(b"\n") + 1].count(b"\n") < 2:
        step = min(_STEP_BYTES + len(tail), start)
        start = file.seek(start - step)
        tail = file.read(step) + tail
    whole = tail[: tail.rfind(b"\n") + 1]
    return start + len(whole), whole[whole.rfind(b"\n", 0, -1) + 1 :]


def _decoded(path: Path, line: bytes) -> Line:
    try:
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        raise _not_an_export(path) from error
    raise _not_an_export(path)


def _not_an_export(path: Path) -> StorageError:
    return StorageError(f"'{path}' is no export of turnlog.")


def import_events(path: Path, lines: Iterable[bytes], progress: Callable[[int], None] | None = None) -> int:
    """Store the events of an export in an empty store, all or nothing; the number of events.

    They keep their order and their bytes, and get their rows of the read model. Several passes may follow
    each other, if each begins where the one before it ended.

    Args:
        path: the store; it is created if there is none.
        lines: the export, line by line.
        progress: called now and then with the number of events stored so far.

    Raises:
        StorageError: the store has events already or is in use, or a line is invalid; the error names the
            line. Nothing has been stored.
    """
    failure = f"The events could not be imported into '{path}'"
    with closing(StoreLock(path)), storage_errors(failure), ExitStack() as undo:
        datastore = EventDatastore(path)
        undo.callback(datastore.close)
        recorder = EventRecorder(datastore)
        recorder.create_table()
        if recorder.last_position():
            raise StorageError(f"The event store '{path}' is not empty. Import into a new one.")
        with datastore.transaction(commit=True) as cursor:
            return _Import(recorder, cursor, progress or (lambda _: None)).take(lines)


# The last two: nested deeper than Python's stack, and numbers beyond 64 bits.
_INVALID = (
    ValueError,
    IntegrityError,
    StorageError,
    IllegalTransitionError,
    msgspec.MsgspecError,
    RecursionError,
    OverflowError,
)


class _Import:
    """The state of an import after each line: the position reached, and whether a pass is complete."""

    def __init__(
        self, recorder: EventRecorder, cursor: SQLiteCursor, progress: Callable[[int], None]
    ) -> None:
        self._recorder = recorder
        self._cursor = cursor
        self._progress = progress
        self._mapper = EventMapper()
        self._sweep = ContentSweep(recorder)
        self._decode = msgspec.json.Decoder(Line).decode
        self._written: dict[str, Writing] = {}
        self._events = 0
        self._events_before_pass = 0
        self._position = 0
        self._in_pass = False

    def take(self, lines: Iterable[bytes]) -> int:
        """Store the events of all lines; the number of events.

        Raises:
            StorageError: a line is invalid, or the last pass has no end line.
        """
        number = 0
        for number, line in enumerate(lines, start=1):
            try:
                self._take(line)
            except _INVALID as error:
                cut = "" if line.endswith(b"\n") else "it is truncated; "
                raise StorageError(f"Line {number} cannot be imported: {cut}{error}") from error
        if self._in_pass or not number:
            raise StorageError(f"The export is truncated after line {number}.")
        self._progress(self._events)
        return self._events

    def _take(self, line: bytes) -> None:
        match self._decode(line):
            case Header() as header:
                self._begin(header)
            case _ if not self._in_pass:
                raise ValueError("the header is missing")
            case EventLine() as event:
                self._store(event)
            case EndLine() as end:
                self._end(end)

    def _begin(self, header: Header) -> None:
        if header.format_version != FORMAT_VERSION:
            raise ValueError(f"unsupported format version {header.format_version}, expected {FORMAT_VERSION}")
        if self._position and header.after != self._position:
            raise ValueError(f"it continues after position {header.after}, expected {self._position}")
        self._in_pass = True
        self._events_before_pass = self._events
        self._position = header.after

    def _store(self, line: EventLine) -> None:
        if line.position <= self._position:
            raise ValueError(f"position {line.position} is not after {self._position}")
        stored = line.stored
        recorded = self._mapper.to_domain_event(stored)
        self._written.setdefault(line.response_id, Writing()).check(recorded)
        self._mapper.to_stored_event(recorded)  # what cannot be written cannot be shown either
        if isinstance(recorded.event, ContentExpired):
            # An earlier pass was made before that, and has the content.
            self._sweep.empty(self._cursor, line.response_id)
        self._recorder.insert(self._cursor, [stored])
        self._position = line.position
        self._events += 1
        if self._events % EVENTS_PER_REPORT == 0:
            self._progress(self._events)

    def _end(self, end: EndLine) -> None:
        events = self._events - self._events_before_pass
        if end.events != events:
            raise ValueError(f"expected {end.events} events, found {events}")
        self._in_pass = False
        self._position = max(self._position, end.position)

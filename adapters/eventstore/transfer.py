"""The log as a file of JSON lines, out of one store and into another, with the very bytes of every event.

A pass is a header, one line for each event, and an end, without which it was cut off. The state of an event
stands in its line as it is stored, for it is JSON; should it ever not be, it stands there as base64.
"""

import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Literal

import msgspec
from eventsourcing.persistence import StoredEvent
from msgspec import Raw, Struct

from turnlog.adapters.eventstore.sqlite import EventDatastore, storage_errors

FORMAT_VERSION = 1

EVENTS_PER_CHUNK = 500
"""Lines that are told at a time: some hundred kilobytes."""

_FAILURE = "The events could not be exported"
_TOTAL = "SELECT count(*) FROM stored_events WHERE rowid > :after"
_EVENTS = """
    SELECT rowid, originator_id, originator_version, topic, state FROM stored_events
    WHERE rowid > :after ORDER BY rowid
"""


class Header(Struct, frozen=True, kw_only=True, tag_field="line", tag="header"):
    """The first line: which events follow. `after` is the position behind which the pass begins."""

    format: Literal["turnlog.log"]
    format_version: int
    after: int = 0
    since_ms: int | None = None
    until_ms: int | None = None


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
            ValueError: the line has no state, or one that is no base64.
        """
        state = bytes(self.event)
        if self.base64 is not None:
            state = b64decode(self.base64, validate=True)
        if not state:
            raise ValueError("it has no event")
        return StoredEvent(self.response_id, self.version, self.topic, state)


class EndLine(Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line: how many events the pass told, and the position from which another can go on."""

    events: int
    position: int


Line = Header | EventLine | EndLine


class _Time(Struct):
    at_ms: int


class SqliteLogPass:
    """A `LogPass` over the log as it was when the pass began; appends go on meanwhile.

    Args:
        after: the position behind which it begins.
        since_ms, until_ms: only events from the first and before the second time are told.
    """

    def __init__(
        self, datastore: EventDatastore, *, after: int, since_ms: int | None, until_ms: int | None
    ) -> None:
        self._header = Header(
            format="turnlog.log",
            format_version=FORMAT_VERSION,
            after=after,
            since_ms=since_ms,
            until_ms=until_ms,
        )
        self._times = _Times(since_ms, until_ms)
        self._told = 0
        self.done = 0
        with storage_errors(_FAILURE):
            # A connection of its own: the pass may take long, and must not keep a reader's.
            self._connection = sqlite3.connect(
                datastore.uri, uri=True, isolation_level=None, check_same_thread=False
            )
        try:
            with storage_errors(_FAILURE):
                self._connection.execute("BEGIN")
                (self.total,) = self._connection.execute(_TOTAL, {"after": after}).fetchone()
        except BaseException:
            self._connection.close()
            raise
        self.position = after

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of whole lines: a header, events, an end."""
        yield _line(self._header)
        with storage_errors(_FAILURE):
            rows = self._connection.execute(_EVENTS, {"after": self.position})
            while chunk := rows.fetchmany(EVENTS_PER_CHUNK):
                lines = [_event_line(*row) for row in chunk if self._times.include(row[4])]
                self._told += len(lines)
                self.done += len(chunk)
                self.position = chunk[-1][0]
                if lines:
                    yield b"".join(lines)
        yield _line(EndLine(events=self._told, position=self.position))

    def close(self) -> None:
        """Let the log go."""
        self._connection.close()


class _Times:
    """Which events are told, by when they happened."""

    def __init__(self, since_ms: int | None, until_ms: int | None) -> None:
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._decode = msgspec.json.Decoder(_Time).decode

    def include(self, state: bytes) -> bool:
        if self._since_ms is None and self._until_ms is None:
            return True
        try:
            at_ms = self._decode(state).at_ms
        except msgspec.MsgspecError:
            return True  # damaged, and of whatever time: an auditor must not miss it
        return (self._since_ms is None or at_ms >= self._since_ms) and (
            self._until_ms is None or at_ms < self._until_ms
        )


_encode = msgspec.json.Encoder().encode
_as_json = msgspec.json.Decoder(Raw).decode


def _line(line: Header | EndLine) -> bytes:
    return _encode(line) + b"\n"


def _event_line(position: int, response_id: str, version: int, topic: str, state: bytes) -> bytes:
    head = b'{"line":"event","position":%d,"response_id":%b,"version":%d,"topic":%b,' % (
        position,
        _encode(response_id),
        version,
        _encode(topic),
    )
    if _is_verbatim(state):
        return b'%b"event":%b}\n' % (head, state)
    return b'%b"base64":"%b"}\n' % (head, b64encode(state))


def _is_verbatim(state: bytes) -> bool:
    """Whether the state comes back as it is from a line of JSON that it stands in."""
    try:
        state.decode()
        return b"\n" not in state and bytes(_as_json(state)) == state
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False

"""A store in memory, at the ports of the log, whose appends and look-ups go as they are told.

It is not one of `tests.fakes`: it is the model's idea of a store, with a disk that outlives crashes, a queue
whose writes wedge and a log of what was acknowledged, against which the invariants are checked.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import Future
from enum import Enum, auto
from typing import Any, NamedTuple

from turnlog.domain.errors import StorageConflictError, StorageError, StorageRefusedError
from turnlog.domain.events import (
    ContentExpired,
    Recorded,
    ResponseCreated,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
)
from turnlog.domain.items import Item

QUEUE_BOUND = 8
"""Unsettled appends from which on no new turn is to begin; few, so that it happens."""


class Fault(Enum):
    """What becomes of one append."""

    LANDS = auto()
    WEDGED = auto()
    """It settles when `Journal.settle` says how; whatever is appended meanwhile waits behind it."""
    FULL = auto()
    CONFLICT = auto()
    DENIED = auto()
    """It lands, and is reported as failed."""
    CRASH_BEFORE = auto()
    """The process dies, and nothing that had not settled has landed."""
    CRASH_AFTER = auto()
    """The process dies; everything has landed, and nobody was told."""


CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)


def _error(fault: Fault) -> StorageError | None:
    """What an append fails with that meets the fault."""
    match fault:
        case Fault.FULL:
            return StorageRefusedError("full", "the disk is full")
        case Fault.CONFLICT:
            return StorageConflictError("somebody else was there first")
        case Fault.DENIED:
            return StorageError("the store says that nothing has landed")
        case _:
            return None


class Disk:
    """What outlives a process: the events of each response, the one of version n at place n - 1.

    `acknowledged` is what a process was told to be stored. `misplaced` was handed over with another version
    than the one after the last: a fault of whoever wrote it. `conversations` has for the first response of
    each when the last turn that was committed in it lets it expire.
    """

    def __init__(self) -> None:
        self.streams: dict[str, list[Recorded]] = {}
        self.acknowledged: list[Recorded] = []
        self.misplaced: list[Recorded] = []
        self.conversations: dict[str, int] = {}
        self._seen: dict[str, int] = {}

    def grown(self) -> list[str]:
        """The ids of the responses that have got events since this was asked last."""
        grown = [each for each, stream in self.streams.items() if len(stream) != self._seen.get(each)]
        self._seen.update((each, len(self.streams[each])) for each in grown)
        return grown

    def events(self, response_id: str) -> list[ResponseEvent]:
        """The stored events of a response, in order."""
        return [recorded.event for recorded in self.streams.get(response_id, ())]

    def ends(self, response_id: str) -> list[ResponseEvent]:
        """Those of its events that end a turn."""
        return [event for event in self.events(response_id) if isinstance(event, TurnCommitted | TurnFailed)]

    def take(self, records: Sequence[Recorded]) -> bool:
        """Store the events, or none of them: whether each came right after the last of its response."""
        for recorded in records:
            stream = self.streams.setdefault(recorded.response_id, [])
            if recorded.version != len(stream) + 1:
                self.misplaced.append(recorded)
                return False
            stream.append(recorded)
            self._move(recorded)
        return True

    def created(self, response_id: str) -> ResponseCreated | None:
        """The first event of the response."""
        first = next(iter(self.events(response_id)), None)
        assert first is None or isinstance(first, ResponseCreated), "a response begins with its creation"
        return first

    def expires_at(self, response_id: str) -> int:
        """When the response is gone: by its own limit, or with its conversation (D-37)."""
        created = self.created(response_id)
        assert created
        if created.retention_s is not None:
            return created.expires_at
        return max(created.expires_at, self.conversations[self._first_of(response_id)])

    def _first_of(self, response_id: str) -> str:
        created = self.created(response_id)
        previous = created and created.previous_response_id
        return self._first_of(previous) if previous else response_id

    def _move(self, recorded: Recorded) -> None:
        """What the event does to the expiry of its conversation."""
        created, first = self.created(recorded.response_id), self._first_of(recorded.response_id)
        assert created
        now_at = self.conversations.setdefault(first, created.expires_at)
        if isinstance(recorded.event, TurnCommitted) and now_at > created.at_ms // 1000:
            self.conversations[first] = max(now_at, created.expires_at)

    def expire(self, now_s: int, spare: Set[str]) -> int:
        """Mark what is over as expired, as a sweep does; how many responses that were.

        The content stays, so that it can be compared with what was sent.
        """
        running = {self._first_of(response_id) for response_id in spare & self.streams.keys()}
        due = [
            response_id
            for response_id, stream in self.streams.items()
            if stream
            and self.expires_at(response_id) < now_s
            and response_id not in spare
            and (self._is_limited(response_id) or self._first_of(response_id) not in running)
            and self.ends(response_id)
            and not self.has_expired(response_id)
        ]
        for response_id in due:
            version = len(self.streams[response_id]) + 1
            self.take([Recorded(response_id, version, ContentExpired(at_ms=now_s * 1000))])
        return len(due)

    def _is_limited(self, response_id: str) -> bool:
        created = self.created(response_id)
        return created is not None and created.retention_s is not None

    def has_expired(self, response_id: str) -> bool:
        """Whether the sweep was there."""
        return any(isinstance(event, ContentExpired) for event in self.events(response_id))


class _Append(NamedTuple):
    records: Sequence[Recorded]
    done: Future[None]


class _Sweep(NamedTuple):
    now_s: int
    spare: Set[str]
    done: Future[int]


class _Refusal(NamedTuple):
    version: int
    error: StorageError


class Journal:
    """The journal of one process; `faults` are what its next appends meet.

    Once `crashed`, the process has died at an append: what it does from then on has no effect.
    `handed_over` are all events it was given, `refused` the responses it has failed to store something of.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._queue: deque[_Append | _Sweep] = deque()
        self._closed = False
        self.faults: deque[Fault] = deque()
        self.crashed = False
        self.handed_over: dict[str, list[Recorded]] = {}
        self.refused: dict[str, _Refusal] = {}

    # ── the ports EventJournal, ContentExpirer and JournalLoad ────────────────────────────────────

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Store all of `events` or none; see `EventJournal.append`."""
        append = _Append(events, Future())
        append.done.set_running_or_notify_cancel()
        if self.crashed:
            return append.done
        self._note(events)
        fault = self.faults.popleft() if self.faults else Fault.LANDS
        if self._closed:
            append.done.set_exception(StorageError("the journal is closed"))
        elif fault in CRASHES:
            self._queue.append(append)
            self.die(landed=len(self._queue) if fault is Fault.CRASH_AFTER else 0)
        elif self._queue or fault is Fault.WEDGED:
            self._queue.append(append)
        else:
            self._settle(append, fault)
        return append.done

    def expire(self, now_s: int, *, spare: Set[str] = frozenset(), limit: int = 0) -> Future[int]:
        """Sweep behind what is queued; see `ContentExpirer.expire`."""
        sweep = _Sweep(now_s, spare, Future())
        if self._queue or self.crashed:
            self._queue.append(sweep)
        else:
            sweep.done.set_result(self._disk.expire(now_s, sweep.spare))
        return sweep.done

    @property
    def accepts_new(self) -> bool:
        """Whether the queue has room for more turns."""
        return len(self._queue) < QUEUE_BOUND

    @property
    def queued_bytes(self) -> int:
        """Of interest to nobody here."""
        return 0

    def oldest_queued_s(self) -> float:
        """Of interest to nobody here."""
        return 0.0

    def close(self) -> None:
        """Take nothing more, and give up what has not settled by now."""
        self._closed = True
        while self._queue:
            self._queue.popleft().done.set_exception(StorageError("the journal was closed"))

    # ── what the test tells it ────────────────────────────────────────────────────────────────────

    @property
    def stuck(self) -> bool:
        """Whether an append has not settled, and hence all after it."""
        return bool(self._queue)

    def holds_end_of(self, response_id: str) -> bool:
        """Whether the append with the last event of the response has not settled."""
        return any(
            recorded.response_id == response_id and isinstance(recorded.event, TurnCommitted | TurnFailed)
            for waiting in self._queue
            if isinstance(waiting, _Append)
            for recorded in waiting.records
        )

    def has_refused_end_of(self, response_id: str) -> bool:
        """Whether the last event of the response was not stored, or not said to be."""
        refusal = self.refused.get(response_id)
        return refusal is not None and any(
            recorded.version >= refusal.version and isinstance(recorded.event, TurnCommitted | TurnFailed)
            for recorded in self.handed_over[response_id]
        )

    def settle(self, faults: Iterable[Fault] = ()) -> None:
        """Let the queue settle, each append by the next of `faults`, up to one that stays wedged."""
        verdicts = iter(faults)
        while self._queue:
            first = self._queue[0]
            if isinstance(first, _Sweep):
                self._queue.popleft()
                first.done.set_result(self._disk.expire(first.now_s, first.spare))
                continue
            verdict = next(verdicts, Fault.LANDS)
            if verdict is Fault.WEDGED:
                return
            if verdict in CRASHES:
                self.die(landed=1 if verdict is Fault.CRASH_AFTER else 0)
                return
            self._queue.popleft()
            self._settle(first, verdict)

    def die(self, landed: int) -> None:
        """The process ends; so many of the unsettled appends have landed, and nobody was told."""
        self.crashed = True
        appends = [waiting for waiting in self._queue if isinstance(waiting, _Append)]
        for append in appends[:landed]:
            if self._refusal(append) is None:
                self._disk.take(append.records)
        self._queue.clear()

    # ──────────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, append: _Append, fault: Fault) -> None:
        error = self._refusal(append) or _error(fault)
        lands = self._refusal(append) is None and fault in (Fault.LANDS, Fault.DENIED)
        if lands and not self._disk.take(append.records):
            error = StorageConflictError("a place is taken, or the one before it is empty")
        if error is None:
            self._disk.acknowledged += append.records
            append.done.set_result(None)
            return
        for recorded in append.records:
            self.refused.setdefault(recorded.response_id, _Refusal(recorded.version, error))
        append.done.set_exception(error)

    def _refusal(self, append: _Append) -> StorageError | None:
        """Why the append cannot be stored: it was built on one that was not."""
        first = append.records[0]
        refusal = self.refused.get(first.response_id)
        return refusal.error if refusal and first.version > refusal.version else None

    def _note(self, events: Sequence[Recorded]) -> None:
        """See whether each event is for the place after the last that was handed over."""
        for recorded in events:
            told = self.handed_over.setdefault(recorded.response_id, [])
            last = told[-1].version if told else len(self._disk.streams.get(recorded.response_id, ()))
            if recorded.version != last + 1:
                self._disk.misplaced.append(recorded)
            told.append(recorded)


class Reads(Enum):
    """What becomes of the look-ups of one request."""

    WORK = auto()
    FAIL = auto()
    FAIL_LATER = auto()
    """The first of them works."""


class Reader:
    """The `EventReader` of one process."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._look_ups = 0
        self._reads = Reads.WORK
        self._meanwhile: Callable[[], None] | None = None

    def go(self, reads: Reads, meanwhile: Callable[[], None] | None) -> None:
        """Let the next look-ups go as `reads` says; `meanwhile` happens during the first of them."""
        self._reads = reads
        self._look_ups = 0
        self._meanwhile = meanwhile

    def events(self, response_id: str, *, owner: str | None = None) -> Future[list[Recorded]]:
        """See `EventReader.events`."""
        return self._answer(list(self._disk.streams.get(response_id, ())))

    def dated(self, response_id: str, *, owner: str | None = None) -> Future[tuple[list[Recorded], int]]:
        """See `EventReader.dated`."""
        stream = list(self._disk.streams.get(response_id, ()))
        return self._answer((stream, self._disk.expires_at(response_id) if stream else 0))

    def expiry(self, response_id: str, *, owner: str | None = None) -> Future[int]:
        """See `EventReader.expiry`."""
        return self._answer(self._disk.expires_at(response_id) if response_id in self._disk.streams else 0)

    def chain(
        self, response_id: str, *, limit: int, now_s: int = 0, owner: str | None = None
    ) -> Future[list[list[Recorded]]]:
        """See `EventReader.chain`."""
        found: list[list[Recorded]] = []
        link: str | None = response_id
        while link and (created := self._disk.created(link)) and len(found) <= limit:
            if self._disk.has_expired(link) or self._disk.expires_at(link) <= now_s:
                break
            found.insert(0, list(self._disk.streams[link]))
            link = created.previous_response_id
        return self._answer(found)

    def unfinished(self) -> Future[list[str]]:
        """See `EventReader.unfinished`."""
        return self._answer([each for each in self._disk.streams if not self._disk.ends(each)])

    def items(self, item_ids: Set[str], *, now_s: int, owner: str | None = None) -> Future[dict[str, Item]]:
        """Nobody refers to items in the model."""
        return self._answer({})

    def ping(self) -> Future[None]:
        """Resolved at once."""
        return self._answer(None)

    def same_file(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing to close."""

    def _answer(self, found: Any) -> Future[Any]:
        """What was found when the look-up began, even if something happens until it is told."""
        self._look_ups += 1
        if self._meanwhile:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        answer: Future[Any] = Future()
        if self._reads is Reads.FAIL or (self._reads is Reads.FAIL_LATER and self._look_ups > 1):
            answer.set_exception(StorageError("the disk cannot be read"))
        else:
            answer.set_result(found)
        return answer

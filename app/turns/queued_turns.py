"""Background turns that have not begun, by id and owner, and which one is next (D-40).

Their input is in the log only.
"""

import asyncio
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.domain.events import ResponseCreated
from turnlog.domain.ports import Frame


class Line(NamedTuple):
    """Turns that wait for each other: those of one owner for one model."""

    model: str
    owner: str


class QueuedTurn:
    """A background turn from its acceptance until it begins, or ends without having begun.

    `fingerprint` is that of the model it was accepted for; None if another process accepted it. `begun` is
    set when it has become a live `turn`, `cancelled` when its owner no longer wants it. `preparation` is the
    task that renders its prompt.
    """

    def __init__(self, created: ResponseCreated, fingerprint: str | None) -> None:
        self.response_id = created.response_id
        self.owner = created.owner
        self.model = created.model
        self.fingerprint = fingerprint
        self.cancelled = False
        self.begun = asyncio.Event()
        self.turn: LiveTurn | None = None
        self.preparation: asyncio.Task[None] | None = None
        self._followed: weakref.ref[FrameLog] | None = None

    @property
    def line(self) -> Line:
        """Where it waits."""
        return Line(self.model, self.owner)

    def follow(self, opening: Sequence[Frame]) -> FrameLog:
        """The frames of the turn as they come; the same for all who follow it.

        Args:
            opening: those of its acceptance, which are kept for as long as somebody follows.
        """
        if self.turn:
            return self.turn.frames
        log = self._followed() if self._followed else None
        if log is None:
            log = FrameLog()
            log.extend(opening, closed=False)
            self._followed = weakref.ref(log)
        return log

    def begin(self, turn: LiveTurn) -> None:
        """It is a live turn from here on."""
        self.turn = turn
        self.begun.set()

    def break_off(self) -> None:
        """Let those who follow it go: the next server runs it."""
        if self._followed and (log := self._followed()):
            log.break_off()


class QueuedTurns:
    """The queued turns of this process, by response id, with a line for each model and owner."""

    def __init__(self) -> None:
        self._turns: dict[str, QueuedTurn] = {}
        self._lines: dict[Line, deque[QueuedTurn]] = {}
        self._counts: Counter[str] = Counter()

    def __iter__(self) -> Iterator[QueuedTurn]:
        return iter(list(self._turns.values()))

    def __len__(self) -> int:
        return len(self._turns)

    def count_of(self, owner: str) -> int:
        """How many turns of the owner are queued."""
        return self._counts[owner]

    def add(self, queued: QueuedTurn) -> None:
        """Queue a turn, or queue it again, behind the others of its model and owner."""
        if queued.response_id not in self._turns:
            self._turns[queued.response_id] = queued
            self._counts[queued.owner] += 1
        self._lines.setdefault(queued.line, deque()).append(queued)

    def next(self, line: Line) -> QueuedTurn | None:
        """Take the first turn out of a line; it stays known until it is removed."""
        if not (waiting := self._lines.get(line)):
            return None
        queued = waiting[0]
        self.withdraw(queued)
        return queued

    def remove(self, queued: QueuedTurn) -> None:
        """Let a turn go that has begun, or ended."""
        self.withdraw(queued)
        if self._turns.pop(queued.response_id, None):
            self._counts[queued.owner] -= 1
            if not self._counts[queued.owner]:
                del self._counts[queued.owner]  # owners come and go

    def withdraw(self, queued: QueuedTurn) -> None:
        """Take a turn out of the line, wherever it stands; it stays known until it is removed."""
        waiting = self._lines.get(queued.line, ())
        if queued in waiting:
            self._lines[queued.line].remove(queued)
            if not self._lines[queued.line]:
                del self._lines[queued.line]

    def of(self, response_id: str, owner: str | None) -> QueuedTurn | None:
        """The turn of that id, if it is the owner's; None is an operator, who sees everybody's (D-18)."""
        queued = self._turns.get(response_id)
        return queued if queued and owner in (None, queued.owner) else None

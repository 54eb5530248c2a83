"""A turn that tells only what is stored (`durability = strict`; D-22 is the other way).

Frames wait until the append that holds their events has landed, the terminal too, so that whatever a client
has seen can be read again. When the store refuses an append, the client learns that its turn has failed.
"""

from collections import deque
from collections.abc import Callable

from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import StorageRefusedError
from turnlog.domain.events import FailureReason, ResponseCreated, ResponseEvent, TurnFailed
from turnlog.domain.ports import Clock, Framer
from turnlog.domain.response import fold
from turnlog.domain.turn import epilogue


class StrictTurn(LiveTurn):
    """A live turn whose frames follow its log.

    Args:
        new_framer: makes a framer; a second one tells the failure of a turn that could not be stored.
    """

    def __init__(self, created: ResponseCreated, new_framer: Callable[[], Framer], clock: Clock) -> None:
        self._waiting: deque[tuple[ResponseEvent, list[bytes], bool]] = deque()
        self._stored: list[ResponseEvent] = []
        self._refused = False
        self._new_framer = new_framer
        self._clock = clock
        super().__init__(created, new_framer())

    def take(self, event: ResponseEvent) -> None:
        """As `LiveTurn.take`; after the store has refused an append, nothing happens any more."""
        if not self._refused:
            super().take(event)

    def written(self, count: int, error: BaseException | None) -> None:
        """The next `count` events were stored, or were not."""
        if self._refused:
            return
        if error is not None:
            self._refuse(error)
            return
        for _ in range(count):
            event, frames, closed = self._waiting.popleft()
            self._stored.append(event)
            self._publish(frames, closed=closed)

    def _tell(self, event: ResponseEvent) -> None:
        self._waiting.append((event, self._framer.receive(event), self._framer.closed))

    def _refuse(self, error: BaseException) -> None:
        """End the turn as its client sees it: what is stored, and then that it failed."""
        full = isinstance(error, StorageRefusedError) and error.reason == "full"
        reason: FailureReason = "storage_full" if full else "error"
        story = self._stored or [self.response.created]
        failed = TurnFailed(at_ms=self._clock.now_ms(), reason=reason, message=str(error))
        ending = epilogue(fold(story), failed)
        framer = self._new_framer()
        frames = [frame for event in (*story, *ending) for frame in framer.receive(event)]
        self.abort(reason)
        self._refused = True
        self.response = fold([*story, *ending])
        # Framing is pure: the frames of what is stored are those that were sent.
        self._publish(frames[len(self.frames) :], closed=True)

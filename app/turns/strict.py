"""A turn that streams only stored events (`durability = strict`; D-22 describes the default).

Frames, including the terminal, wait until the append with their events has landed, so that a client can
read again everything it has seen. When the store refuses an append, the client's turn fails.
"""

from collections import deque
from collections.abc import Callable, Sequence

from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.domain.errors import StorageRefusedError
from turnlog.domain.events import FailureReason, ResponseEvent
from turnlog.domain.ports import Clock, Frame, Framer
from turnlog.domain.response import Response, fold


class StrictTurn(LiveTurn):
    """A live turn whose frames follow its log.

    Args:
        new_framer: makes a framer; a second one renders the failure of a turn that could not be stored.
        followed: as for a `LiveTurn`; its acceptance is stored.
    """

    def __init__(
        self,
        response: Response,
        new_framer: Callable[[], Framer],
        clock: Clock,
        followed: FrameLog | None = None,
    ) -> None:
        self._waiting: deque[tuple[ResponseEvent, Sequence[Frame], bool]] = deque()
        self._stored: list[ResponseEvent] = [response.created] if followed else []
        self._refused = False
        self._new_framer = new_framer
        self._clock = clock
        super().__init__(response, new_framer(), followed)

    def publish(self, events: Sequence[ResponseEvent]) -> None:
        """Render the events now; `written` sends their frames."""
        for event in events:
            frames = self._framer.receive(event, self.response)
            self._waiting.append((event, frames, self._framer.closed))

    def written(self, count: int, error: BaseException | None) -> None:
        """The next `count` events were stored, or were not."""
        if self._refused or self.ended.is_set():
            return
        if error is not None:
            self._refuse(error)
            return
        for _ in range(count):
            event, frames, closed = self._waiting.popleft()
            self._stored.append(event)
            self._send(frames, closed=closed)

    def _refuse(self, error: BaseException) -> None:
        """End the turn for its client: the stored events, then the failure."""
        full = isinstance(error, StorageRefusedError) and error.reason == "full"
        reason: FailureReason = "storage_full" if full else "error"
        self.abort(reason)
        self._refused = True
        story = self._stored or [self.response.created]
        self.response = fold(story)
        ending = self.response.fail(reason, str(error), at_ms=self._clock.now_ms())
        framer = self._new_framer()
        frames = [frame for event in (*story, *ending) for frame in framer.receive(event, self.response)]
        # Framing is pure: the frames of the stored events equal those that were sent.
        self._send(frames[len(self.frames) :], closed=True)

"""How much of the server one owner may have at a time, so that one cannot keep the others out."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from turnlog.app.turns.live_turns import LiveTurns
from turnlog.domain.errors import OwnersShareError

MAX_BACKGROUND_TURNS = 1_000
"""How many background turns of one owner may be queued, with or without keys (D-40)."""


class Quotas:
    """The owners' shares. Without keys everybody is one owner, who shares with nobody (R-040).

    Args:
        in_force: whether there are keys.
        retry_after_s: in how many seconds so many turns that wait will have been run.
        max_queued: how many turns of one owner may wait for their lane.
        max_streams: how many streams one owner may read.
        max_websockets: how many WebSockets one owner may have open.
    """

    def __init__(
        self,
        live: LiveTurns,
        *,
        in_force: Callable[[], bool],
        retry_after_s: Callable[[int], int],
        max_queued: int,
        max_streams: int,
        max_websockets: int,
    ) -> None:
        self._live = live
        self._in_force = in_force
        self._retry_after_s = retry_after_s
        self._max_queued = max_queued
        self._max_streams = max_streams
        self._max_websockets = max_websockets
        self._beginning: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._websockets: Counter[str] = Counter()
        self._queueing: Counter[str] = Counter()

    @contextmanager
    def beginning(self, owner: str) -> Iterator[None]:
        """While a turn is being accepted; from then on it counts until it starts.

        Raises:
            OwnersShareError: as many turns of the owner wait as may.
        """
        if self._in_force() and self._waiting(owner) >= self._max_queued:
            raise OwnersShareError("Queued turn", self._max_queued, self._retry_after_s(self._max_queued))
        with _one_more(self._beginning, owner):
            yield

    @contextmanager
    def queueing(self, owner: str) -> Iterator[None]:
        """While a background turn is being accepted; from then on it counts until it begins.

        Raises:
            OwnersShareError: as many background turns of the owner are queued as may.
        """
        waiting = self._queueing[owner] + self._live.queued_of(owner, background=True)
        if waiting >= MAX_BACKGROUND_TURNS:
            raise OwnersShareError("background turns queued", MAX_BACKGROUND_TURNS, self._retry_after_s(1))
        with _one_more(self._queueing, owner):
            yield

    @contextmanager
    def streaming(self, owner: str) -> Iterator[None]:
        """While a stream is read.

        Raises:
            OwnersShareError: the owner reads as many streams as it may.
        """
        if self._in_force() and self._streams[owner] >= self._max_streams:
            raise OwnersShareError("Stream", self._max_streams, self._retry_after_s(1))
        with _one_more(self._streams, owner):
            yield

    @contextmanager
    def connected(self, owner: str) -> Iterator[None]:
        """While a WebSocket is open.

        Raises:
            OwnersShareError: the owner has as many open as it may.
        """
        if self._in_force() and self._websockets[owner] >= self._max_websockets:
            raise OwnersShareError("WebSocket", self._max_websockets, self._retry_after_s(1))
        with _one_more(self._websockets, owner):
            yield

    def _waiting(self, owner: str) -> int:
        return self._beginning[owner] + self._live.queued_of(owner)


@contextmanager
def _one_more(counter: Counter[str], owner: str) -> Iterator[None]:
    counter[owner] += 1
    try:
        yield
    finally:
        counter[owner] -= 1
        if not counter[owner]:
            del counter[owner]  # owners come and go

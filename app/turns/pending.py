"""Tracks unsettled writes: those in flight, and a marker for each that is past its hard limit.

"The write" of a response is the append that holds its `TurnCommitted` (D-13, R-127 … R-137). One tracker
stands beside each store (R-127). Times are Unix milliseconds and come in as arguments.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

SWEEP_VISITS = 64
"""How many markers one marking looks at, so that its cost does not grow with their number (R-134)."""

Write = TypeVar("Write")


class Sizes(NamedTuple):
    """How much a tracker holds: writes in flight, live markers, known expiries (R-137)."""

    writes: int
    markers: int
    expiries: int


class _InFlight(NamedTuple, Generic[Write]):
    write: Write
    earliest_expiry_ms: float | None
    owner: str | None


class _Marker(Struct):
    """Lives until `expires_ms`, which each access extends by `ttl_ms`, never past `cap_ms`."""

    ttl_ms: float
    cap_ms: float
    owner: str | None
    expires_ms: float = 0.0

    def slide(self, now_ms: int) -> None:
        self.expires_ms = min(now_ms + self.ttl_ms, self.cap_ms)

    def lives(self, now_ms: int) -> bool:
        return now_ms < self.expires_ms


class PendingWrites(Generic[Write]):
    """What is known of writes that the store has not confirmed, by the response they belong to.

    A `Write` is whatever its owner can wait for; nothing here looks inside. A marker costs a few numbers,
    whatever the turn behind it was, and goes by itself when its time is over.

    Args:
        owner_of: whose a response is, asked once, when its write begins; None if everybody may know of it.
    """

    def __init__(self, owner_of: Callable[[str], str | None] = lambda _: None) -> None:
        self._owner_of = owner_of
        self._in_flight: dict[str, _InFlight[Write]] = {}
        # Ordered by last use: the least recently used ones are first, where the sweep begins.
        self._markers: OrderedDict[str, _Marker] = OrderedDict()

    def __contains__(self, response_id: object) -> bool:
        """Whether anything is known of a write of this response. Changes nothing."""
        return response_id in self._in_flight or response_id in self._markers

    def concerns(self, response_id: str, owner: str) -> bool:
        """Whether anything is known of a write of this response that this owner may know (D-18)."""
        known = self._in_flight.get(response_id) or self._markers.get(response_id)
        return known is not None and known.owner in (None, owner)

    def register(self, response_id: str, write: Write, earliest_expiry_ms: float | None) -> None:
        """A write was started; it can be found at once (R-128).

        Args:
            earliest_expiry_ms: when the response or the first of its chain expires for good, so that the
                write is of no use any more; None if that is not known (R-129).
        """
        owner = self._owner_of(response_id)
        self._in_flight[response_id] = _InFlight(write, earliest_expiry_ms, owner)

    def settle(self, response_id: str, write: Write) -> None:
        """The write has landed or failed, in time or late; forget it (R-128, R-133)."""
        known = self._in_flight.get(response_id)
        if known and known.write is write:
            del self._in_flight[response_id]
        self._markers.pop(response_id, None)

    def hard_time_out(self, response_id: str, *, now_ms: int, ttl_ms: float) -> bool:
        """Replace a wedged write by a marker (R-130, R-131).

        Args:
            ttl_ms: how long the marker lives after its last use; at most to the write's earliest expiry.

        Returns:
            Whether there was such a write in flight.
        """
        self._sweep(now_ms, SWEEP_VISITS)
        wedged = self._in_flight.pop(response_id, None)
        if wedged is None:
            return False
        known = wedged.earliest_expiry_ms
        marker = _Marker(ttl_ms, math.inf if known is None else known, wedged.owner)
        marker.slide(now_ms)
        self._markers[response_id] = marker
        self._markers.move_to_end(response_id)
        return True

    def in_flight(self, response_id: str) -> Write | None:
        """The write of the response that is in flight, if there is one."""
        known = self._in_flight.get(response_id)
        return known.write if known else None

    def refresh_marker(self, response_id: str, *, now_ms: int) -> bool:
        """Whether the response has a live marker; the access extends its life (R-132)."""
        marker = self._markers.get(response_id)
        if marker is None:
            return False
        if not marker.lives(now_ms):
            del self._markers[response_id]
            return False
        marker.slide(now_ms)
        self._markers.move_to_end(response_id)
        return True

    def earliest_expiry_ms(self, response_id: str, *, now_ms: int) -> float | None:
        """When the write's chain expires, so that it is useless; 0 = already, None = unknown (R-135).

        Changes nothing. A dead marker counts as expired: an answer must not go back from 404 to 503.
        """
        if known := self._in_flight.get(response_id):
            return known.earliest_expiry_ms
        if marker := self._markers.get(response_id):
            return marker.cap_ms if marker.lives(now_ms) else 0
        return None

    def sizes(self, *, now_ms: int) -> Sizes:
        """How much is held; dead markers are swept first."""
        self._sweep(now_ms, len(self._markers))
        expiries = sum(known.earliest_expiry_ms is not None for known in self._in_flight.values())
        return Sizes(len(self._in_flight), len(self._markers), expiries)

    def _sweep(self, now_ms: int, visits: int) -> None:
        """Drop dead markers among the oldest. `visits` limits the markers checked, not those dropped."""
        for response_id in list(islice(self._markers, visits)):
            if not self._markers[response_id].lives(now_ms):
                del self._markers[response_id]

"""Remembers which appends were refused, so that what was built on one of them is refused with it."""

from collections.abc import Sequence

from eventsourcing.persistence import StoredEvent

from turnlog.domain.errors import StorageError

REMEMBERED = 10_000
"""Responses, oldest forgotten first. Even then a gap is refused, by the version that is missing."""


class RefusedAppends:
    """Where the newest refused append of a response began, and why it was refused.

    What begins further on was made by someone who took that append for stored. What begins there, or
    before, was not: it is a new try, and when it succeeds the refusal is forgotten.
    """

    def __init__(self) -> None:
        self._refusals: dict[str, tuple[int, StorageError]] = {}

    def reason(self, stored: Sequence[StoredEvent]) -> StorageError | None:
        """Why an append that follows a refused one is refused; None if it does not follow one."""
        for response_id, version in _beginnings(stored).items():
            refused_at, failure = self._refusals.get(response_id, (version, None))
            if failure and version > refused_at:
                return failure
        return None

    def remember(self, stored: Sequence[StoredEvent], failure: StorageError) -> None:
        """The append was refused; if it follows another refused one, that one is remembered already."""
        if self.reason(stored):
            return
        for response_id, version in _beginnings(stored).items():
            self._refusals.pop(response_id, None)
            self._refusals[response_id] = (version, failure)
        while len(self._refusals) > REMEMBERED:
            del self._refusals[next(iter(self._refusals))]

    def forget(self, stored: Sequence[StoredEvent]) -> None:
        """The append was stored: whoever made it knew better."""
        if self._refusals:
            for response_id in _beginnings(stored):
                self._refusals.pop(response_id, None)


def _beginnings(stored: Sequence[StoredEvent]) -> dict[str, int]:
    """The first version of each response in an append."""
    return {str(each.originator_id): each.originator_version for each in reversed(stored)}

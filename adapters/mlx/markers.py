"""Markers in a stream of text: where the text is cut makes no difference to which of them are found."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Found(NamedTuple):
    """A marker in a text: which of those looked for it is, and where it starts and ends."""

    number: int
    start: int
    end: int


def first(text: str, markers: Sequence[str]) -> Found | None:
    """The first marker in `text`, if there is one."""
    # By end, not by start: a marker that ends sooner is complete sooner, so the result does not depend on
    # where the text was cut. Of those that end together, the longest.
    return min(_found(text, markers), key=lambda found: (found.end, found.start), default=None)


def beginning(text: str, markers: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a marker."""
    return max((_shared(text, marker) for marker in markers), default=0)


def _found(text: str, markers: Sequence[str]) -> Iterator[Found]:
    for number, marker in enumerate(markers):
        start = text.find(marker)
        if start >= 0:
            yield Found(number, start, start + len(marker))


def _shared(text: str, marker: str) -> int:
    longest = min(len(text), len(marker) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(marker[:size])), 0)

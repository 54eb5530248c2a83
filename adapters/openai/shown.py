"""What a client calls a thing, in a form that may stand in a log line or a sentence.

A log line has no content and an answer does not give a megabyte back: only what looks like a name is shown.
"""

import re
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST = 10
UNNAMED = "(not a name)"


def named(given: object) -> str:
    """The type a client gave, or a word for one that is no name."""
    return given if isinstance(given, str) and _NAME.fullmatch(given) else UNNAMED


def shown(kinds: Iterable[str]) -> list[str]:
    """The types to tell an operator of, sorted and not too many."""
    return sorted({named(kind) for kind in kinds})[:_MOST]

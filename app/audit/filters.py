"""Conditions on responses as they are written, in a query or as options, and the filter that they make."""

from collections.abc import Iterable
from typing import Any

from turnlog.app.audit.times import read_time
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ids import response_id

_TIMES = {"since": "since_ms", "until": "until_ms"}
_IDS = ("chain", "replay_of", "after")
_WORDS = (*_IDS, "state", "status", "reason", "model", "owner", "surface", "tool", "q", "order")
_NUMBERS = ("min_latency_ms", "min_tokens", "limit")
_METADATA = "metadata."

NAMES = (*_TIMES, *_WORDS, *_NUMBERS, "metadata.KEY")
"""What there is to ask for."""


def read_filter(given: Iterable[tuple[str, str]], *, now_ms: int) -> AuditFilter:
    """The filter that these names and values make.

    Raises:
        InvalidRequestError: a name is unknown or given twice, or a value is of another kind; `param` says
            which.
    """
    conditions: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    for name, text in given:
        key = name.removeprefix(_METADATA)
        if name in conditions or (key != name and key in metadata):
            raise InvalidRequestError(f"{name} may be given only once.", param=name)
        if key not in ("", name):
            metadata[key] = text
        elif name in _IDS:
            conditions[name] = response_id(text)
        elif name in _WORDS:
            conditions[name] = text
        elif name in _NUMBERS:
            conditions[name] = _number(name, text)
        elif name in _TIMES:
            conditions[name] = read_time(name, text, now_ms=now_ms)
        else:
            raise InvalidRequestError(
                f"Unknown parameter '{name[:64]}'. Valid parameters: {', '.join(NAMES)}.", param=name[:64]
            )
    return AuditFilter(
        **{_TIMES.get(name, name): value for name, value in conditions.items()}, metadata=metadata
    )


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidRequestError(f"{name} must be an integer.", param=name)
    return int(text)

"""Points in time as people write them: some time ago, a date, or Unix seconds."""

import re
from datetime import UTC, datetime

from turnlog.domain.errors import InvalidRequestError

_AGO = re.compile(r"(\d{1,9})\s*(s|m|min|h|d|w)", re.ASCII)
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_YEAR_10000_S = 253_402_300_800

EXAMPLES = "such as 30m, 2h or 3d ago, 2026-11-29, 2026-11-29T10:00:00Z, or Unix seconds"


def read_time(name: str, text: str, *, now_ms: int) -> int:
    """The time that `text` says, in Unix milliseconds. A date without an offset is in UTC.

    Raises:
        InvalidRequestError: it says none; `param` is `name`.
    """
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    if _NUMBER.fullmatch(text):
        if float(text) >= _YEAR_10000_S:
            raise InvalidRequestError(f"{name} is {text}: out of range for Unix seconds.", param=name)
        return round(float(text) * 1000)
    try:
        # In a query string an offset's plus sign becomes a space unless it was escaped.
        at = datetime.fromisoformat(re.sub(r" (\d\d:?\d\d)$", r"+\1", text) if "T" in text else text)
    except ValueError:
        raise InvalidRequestError(
            f"{name} is not a valid time. Expected a time {EXAMPLES}.", param=name
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)

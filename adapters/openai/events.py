"""The log of a response as JSON: an extension of turnlog's to the API."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnlog.domain.events import Recorded, topic


def event_object(recorded: Recorded) -> dict[str, Any]:
    """One stored event: its version, topic and time (ISO 8601, UTC), and what it says."""
    data = msgspec.to_builtins(recorded.event)
    del data["type"], data["at_ms"]
    return {
        "version": recorded.version,
        "event": topic(recorded.event),
        "time": time_text(recorded.event.at_ms),
        "data": data,
    }


def event_list(events: Iterable[Recorded]) -> dict[str, Any]:
    """The body of `GET /v1/responses/{id}/events`."""
    return {"object": "list", "data": [event_object(recorded) for recorded in events]}


def time_text(at_ms: int | None) -> str | None:
    """A time in ISO 8601, UTC, to the millisecond."""
    if at_ms is None:
        return None
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError):  # a retention of ten thousand years
        return None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

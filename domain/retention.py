"""How long a response is kept (R-023 … R-029, D-37).

Two times end a response. A request that sets a retention limits its own response, whatever happens later. Any
other response is kept as long as its conversation, which each committed turn keeps for that turn's retention.
"""

from collections.abc import Iterable

from turnlog.domain.events import ResponseCreated

RETENTION_RANGE_S = (60, 90 * 86_400)
"""What a request may ask for by `metadata.retention_seconds`, both ends included (R-023)."""

DEFAULT_RETENTION_S = 7 * 86_400


def expires_at(now_ms: int, requested_s: int | None, default_s: int) -> int:
    """Unix time in seconds from which a response made at `now_ms` is gone (R-024, R-027)."""
    return now_ms // 1000 + (default_s if requested_s is None else requested_s)


def requested_retention_s(created: ResponseCreated) -> int | None:
    """The retention that the request itself set; None if it left that to the server."""
    # Events older than the field have it in their metadata only.
    return created.retention_s or created.metadata.get("retention_seconds")


def earliest_expiry(created: ResponseCreated, ancestors: Iterable[ResponseCreated]) -> int:
    """Unix time in seconds from which a turn cannot be continued, once it is stored and unless it is used.

    Storing it keeps its conversation at least as long as itself, so of its ancestors only those count that
    their requests limited.
    """
    limits = (each.expires_at for each in ancestors if requested_retention_s(each) is not None)
    return min([created.expires_at, *limits])

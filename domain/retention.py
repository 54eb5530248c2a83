"""How long a response is kept (R-023 … R-029)."""

RETENTION_RANGE_S = (60, 90 * 86_400)
"""What a request may ask for by `metadata.retention_seconds`, both ends included (R-023)."""

DEFAULT_RETENTION_S = 7 * 86_400


def expires_at(now_ms: int, requested_s: int | None, default_s: int) -> int:
    """Unix time in seconds from which a response made at `now_ms` is gone (R-024, R-027)."""
    return now_ms // 1000 + (default_s if requested_s is None else requested_s)

"""Rows of the read model, as short as the tests need them."""

from typing import Any

from turnlog.domain.audit.rows import AuditRow


def row(response_id: str, previous: str | None = None, **fields: Any) -> AuditRow:
    """A turn that went well, unless the fields say otherwise."""
    usual: dict[str, Any] = {
        "chain": "resp_a",
        "replay_of": None,
        "owner": "alice",
        "model": "tiny",
        "state": "persisted",
        "status": "completed",
        "outcome": "completed",
        "reason": None,
        "created_ms": 1000,
        "started_ms": 1001,
        "ended_ms": 1005,
        "expires_at": 2000,
        "last_version": 7,
        "expired": False,
        "usage": None,
        "tools": (),
        "retry_digest": None,
        "body_digest": None,
    }
    return AuditRow(response_id=response_id, previous_response_id=previous, **usual | fields)


FAILED: dict[str, Any] = {"state": "failed", "status": "failed", "outcome": None, "reason": "error"}

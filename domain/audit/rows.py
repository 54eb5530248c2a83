"""Rows of the read model: metadata of a response, for lists."""

from typing import Literal

from msgspec import Struct

from turnlog.domain.events import FailureReason, Outcome
from turnlog.domain.usage import Usage

ApiStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class AuditRow(Struct, frozen=True, kw_only=True):
    """What a list shows of a response.

    `chain` is the id of the oldest response the conversation leads back to, stored or not. `usage` is None
    until the turn has ended. `tools` are the tools that were called. `retry_digest` and `body_digest` tell
    the same request from others (`attempts.request_digests`), `is_retry` says that the client counts it as
    one sent again; `tools` and both go when the content expires.
    One that is `deleted` is `expired` as soon as its content is removed.
    """

    response_id: str
    previous_response_id: str | None
    chain: str
    replay_of: str | None
    owner: str
    model: str
    state: str
    status: ApiStatus
    outcome: Outcome | None
    reason: FailureReason | None
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    expires_at: int
    last_version: int
    expired: bool
    deleted: bool = False
    usage: Usage | None
    tools: tuple[str, ...]
    retry_digest: str | None
    body_digest: str | None
    is_retry: bool = False

    @property
    def latency_ms(self) -> int | None:
        """From creation to end; None until the turn has ended."""
        return None if self.ended_ms is None else self.ended_ms - self.created_ms


class AuditPage(Struct, frozen=True):
    """Rows in the order that was asked for."""

    rows: list[AuditRow]
    has_more: bool

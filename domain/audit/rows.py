"""Rows of the read model: metadata of a response, for lists."""

from typing import Literal

from msgspec import Struct

from turnlog.domain.events import FailureReason, Outcome, Surface
from turnlog.domain.usage import Usage

ApiStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class AuditRow(Struct, frozen=True, kw_only=True):
    """What a list shows of a response.

    `chain` is the id of the oldest response the conversation leads back to, stored or not; `follows` is the
    one whose transcript a chat's history is (`transcripts`). `usage` is None
    until the turn has ended. `tools` are the tools that were called. `retry_digest` and `body_digest` tell
    the same request from others (`attempts.request_digests`), `is_retry` says that the client counts it as
    one sent again; `tools` and both go when the content expires.
    One that is `deleted` is `expired` as soon as its content is removed.
    """

    response_id: str
    previous_response_id: str | None
    chain: str
    replay_of: str | None
    follows: str | None = None
    surface: Surface = "responses"
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


class Scan(Struct, frozen=True, kw_only=True):
    """How far a search came that reads the texts themselves, because the index does not hold so short a text.

    It looked at so many `responses` that meet the other conditions, the last of them the one with the id
    `reached`. If it was `cut` there are more, at which a page after that one looks.
    """

    responses: int
    reached: str | None
    reached_ms: int | None
    cut: bool


class AuditPage(Struct, frozen=True):
    """Rows in the order that was asked for; `scan` is None where an index served.

    With `has_more` the next page is the one after `last_id`.
    """

    rows: list[AuditRow]
    has_more: bool
    scan: Scan | None = None

    @property
    def last_id(self) -> str | None:
        """The last row's id or, if a scan was cut, that of the last response it looked at."""
        if self.scan and self.scan.cut:
            return self.scan.reached
        return self.rows[-1].response_id if self.rows else None

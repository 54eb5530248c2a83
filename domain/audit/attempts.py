"""Attempts: the responses to one request that its client sent again after a failure."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.events import ResponseCreated
from turnlog.domain.idempotency import key_digest

RETRY_WINDOW_MS = 60_000
"""So long after an attempt ended, the same body is another attempt at the same request."""


def request_digests(created: ResponseCreated, *, counter: str) -> tuple[str | None, str]:
    """What is the same for two attempts at one request: of its retry keys, None without any, and of its body.

    The body's digest leaves out the seed, because one that was drawn cannot be told from one that was asked
    for. An idempotency key stands for itself; any other key marks a retry only of the same body, for some
    clients send one and the same in a whole conversation.

    Args:
        counter: under which name the number of the attempt stands among the retry keys; it is no key.
    """
    body = replace(
        created,
        at_ms=0,
        response_id="",
        sampling=replace(created.sampling, seed=0),
        expires_at=0,
        instance_id=0,
        boot_id="",
        retry_keys={},
        body_sha256=None,
        replay_of=None,
        wire_version=0,
    )
    body_digest = _digest(body)
    if key := created.idempotency_key:
        return key_digest(created.owner, key), body_digest
    keys = {name: key for name, key in created.retry_keys.items() if name != counter}
    if not keys:
        return None, body_digest
    return _digest((created.owner, sorted(keys.items()), body_digest)), body_digest


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value)).hexdigest()


def attempts(rows: Iterable[AuditRow]) -> list[list[AuditRow]]:
    """The rows as groups, each the attempts a client made at one request, in order; most have one.

    A response is another attempt when the one before it failed and has the same retry keys, or had the same
    body and ended less than a minute before. A replay is nobody's retry.
    """
    groups: list[list[AuditRow]] = []
    by_digest: dict[str, list[AuditRow]] = {}
    for row in sorted(rows, key=lambda row: row.created_ms):
        digests = [] if row.replay_of else [each for each in (row.retry_digest, row.body_digest) if each]
        known = (by_digest[each] for each in digests if each in by_digest)
        group = next((each for each in known if _is_retry(row, each[-1])), None)
        if group is None:
            group = []
            groups.append(group)
        group.append(row)
        by_digest.update(dict.fromkeys(digests, group))
    return groups


def _is_retry(row: AuditRow, earlier: AuditRow) -> bool:
    if earlier.reason is None:
        return False
    if row.retry_digest and row.retry_digest == earlier.retry_digest:
        return True
    ended_ms = earlier.created_ms if earlier.ended_ms is None else earlier.ended_ms
    return row.body_digest == earlier.body_digest and row.created_ms - ended_ms <= RETRY_WINDOW_MS


def attempts_with(response_id: str, rows: Sequence[AuditRow]) -> list[AuditRow]:
    """The attempts of which the response is one, in order."""
    return next(
        (group for group in attempts(rows) if any(row.response_id == response_id for row in group)), []
    )

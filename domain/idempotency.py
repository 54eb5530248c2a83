"""Idempotency keys: for a day what an owner asks under one key is one turn, unless it fails (T2-26)."""

from hashlib import sha256

import msgspec

from turnlog.domain.errors import IdempotencyKeyReusedError
from turnlog.domain.events import ResponseCreated
from turnlog.domain.request import TurnRequest

KEY_LIFE_MS = 24 * 3_600_000
"""How long a key stands for a turn, from the turn's creation on."""


def key_digest(owner: str, key: str) -> str:
    """The SHA-256, in hex, by which the log's read model knows an owner's key."""
    return sha256(msgspec.json.encode((owner, key))).hexdigest()


def check_same_body(request: TurnRequest, created: ResponseCreated) -> None:
    """Refuse a request under the key of a turn that was asked for by another body.

    Raises:
        IdempotencyKeyReusedError: the bodies differ.
    """
    if request.body_sha256 != created.body_sha256:
        raise IdempotencyKeyReusedError(created.response_id)

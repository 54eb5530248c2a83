"""Whether a chain may be continued: the rules between what the store holds and what a request asks (D-12)."""

from collections.abc import Sequence

from turnlog.domain.errors import (
    ChainTooLongError,
    ModelIdentityError,
    PreviousResponseNotCompletedError,
    PreviousResponseNotFoundError,
)
from turnlog.domain.response import Response, api_status

CONTINUABLE = ("completed", "incomplete")


def check_chain(previous_id: str, stored: Sequence[Response], *, limit: int) -> None:
    """Refuse a chain that is not whole, not finished or too long.

    Args:
        previous_id: the response the request wants to continue.
        stored: the responses found for it that have not expired, oldest first; at most `limit` + 1.
        limit: how many responses a chain may have (D-31).

    Raises:
        PreviousResponseNotFoundError: the response or an ancestor is not among those found.
        PreviousResponseNotCompletedError: the response failed, was cancelled or is still running.
        ChainTooLongError: the chain is longer than `limit` or runs in a circle.
    """
    if not stored:
        raise PreviousResponseNotFoundError(previous_id)
    if len(stored) > limit:
        raise ChainTooLongError(previous_id, limit)
    if missing := stored[0].created.previous_response_id:
        raise PreviousResponseNotFoundError(previous_id, missing)
    check_continuable(stored[-1])


def check_identity(
    previous: Response, *, model: str, boot_id: str, instance_id: int, fingerprint: str
) -> None:
    """Refuse to continue a chain on another model of this process than the one that made it (R-145, D-27).

    A chain of an earlier process continues by name only, and a model that was unloaded and loaded again is
    the same model.

    Args:
        previous: the newest response of the chain.
        model: the name that was asked for; the rest says what it means in this process.

    Raises:
        ModelIdentityError: another model made the chain.
    """
    made = previous.created
    if made.boot_id != boot_id or made.instance_id == instance_id:
        return
    if previous.started is None or previous.started.model_fingerprint != fingerprint:
        raise ModelIdentityError(previous.id, model)


def check_continuable(response: Response) -> None:
    """Refuse to go on from a turn that did not end well, or has not ended.

    Raises:
        PreviousResponseNotCompletedError: it failed, was cancelled or is still running.
    """
    status = api_status(response)
    if status not in CONTINUABLE:
        raise PreviousResponseNotCompletedError(response.id, status)

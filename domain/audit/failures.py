"""Why a turn failed: what happened, and what an operator can do about it."""

from collections.abc import Mapping

from msgspec import Struct

from turnlog.domain.events import FailureReason, TurnFailed
from turnlog.domain.response import Response

FAILURES: Mapping[FailureReason, tuple[str, str]] = {
    "error": (
        "The engine failed with an error during the turn.",
        "Check the engine error. If this input did not cause it, run the turn again.",
    ),
    "client_abort": (
        "The client disconnected before the answer was complete, so the engine was stopped.",
        "Usually none: the client may have retried (see the attempts). If many clients disconnect, their "
        "timeouts may be too short for the answers.",
    ),
    "finish_reason_error": (
        "The engine reported an error as its finish reason.",
        "Run the turn again. If it fails again, read the prompt of the turn.",
    ),
    "stream_exhausted": (
        "The engine's output ended without a finish reason.",
        "Run the turn again. If it happens often, check the engine's log.",
    ),
    "cancelled": (
        "The turn was cancelled on request.",
        "None.",
    ),
    "server_restart": (
        "The server stopped abruptly during the turn: it was killed, it crashed, or the power failed.",
        "Run the turn again. Check the server's log for the cause.",
    ),
    "engine_timeout": (
        "The engine exceeded the token timeout or the turn timeout.",
        "Check whether the machine is overloaded. If the request is just large, raise "
        "TURNLOG_TOKEN_TIMEOUT_S or TURNLOG_TURN_TIMEOUT_S. Then run the turn again.",
    ),
    "engine_crashed": (
        "The engine process ended during the turn: it was killed, it hung, it ran out of memory, or a kernel "
        "failed.",
        "Run the turn again; the model is reloaded. If it crashes again, check the server's log for the last "
        "output of the process, and 'turnlog models' for the number of restarts.",
    ),
    "shutting_down": (
        "The server was stopped during the turn.",
        "Run the turn again. A longer TURNLOG_SHUTDOWN_GRACE_S lets more turns finish.",
    ),
    "model_changed": (
        "The model name was rebound to another model while the turn was queued.",
        "Run the turn again on the new model.",
    ),
    "storage_full": (
        "The turn's events could not be stored: the disk is full, or the file is read-only.",
        "Free disk space ('turnlog vacuum' reclaims that of expired responses), then run the turn again.",
    ),
    "model_unavailable": (
        "There was not enough memory for the model or for the turn.",
        "Unload a model ('turnlog models unload NAME') or raise TURNLOG_MEMORY_BYTES, then run it again.",
    ),
    "constraint_lost": (
        "The schema of the answer or of its calls became too complex to follow as the answer grew.",
        "Have the client use a simpler schema: fewer counted repetitions within each other in a pattern.",
    ),
}
"""What happened and what to do about it, for each reason."""


class Failure(Struct, frozen=True):
    """Why a turn failed; `message` is the engine's or the server's."""

    reason: FailureReason
    message: str
    happened: str
    advice: str


def failure(turn: Response) -> Failure | None:
    """Why the turn failed; None if it did not."""
    match turn.ended:
        case TurnFailed(reason=reason, message=message):
            return Failure(reason, message, *FAILURES[reason])
        case _:
            return None

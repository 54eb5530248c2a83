"""Why a turn failed, in plain words: what happened, and what an operator can do about it."""

from collections.abc import Mapping

from msgspec import Struct

from turnlog.domain.events import FailureReason, TurnFailed
from turnlog.domain.response import Response

FAILURES: Mapping[FailureReason, tuple[str, str]] = {
    "error": (
        "The engine broke off with an error while it worked on the turn.",
        "Read what the engine said; if it is not about this input, run the turn again.",
    ),
    "client_abort": (
        "The client hung up before the answer was complete, so the engine was stopped.",
        "Usually nothing: look at the attempts, the client may have asked again. If many clients hang up, "
        "their time limits may be shorter than the answers take.",
    ),
    "finish_reason_error": (
        "The engine said at the end that its answer is not good.",
        "Run the turn again; if that fails too, read the prompt that the model saw.",
    ),
    "stream_exhausted": (
        "The engine stopped without saying that the answer had ended, as if it had lost the turn.",
        "Run the turn again; if it happens often, look at the engine's own log.",
    ),
    "cancelled": (
        "Somebody asked for the turn to be cancelled, and it was.",
        "Nothing: it was meant.",
    ),
    "server_restart": (
        "The server ended abruptly while the turn ran: it was killed, it crashed, or the power failed.",
        "Run the turn again; look at the server's log for why it ended.",
    ),
    "engine_timeout": (
        "The engine gave no token for longer than it may, or the whole turn took too long.",
        "See whether the machine is overloaded; if the work is just large, raise TURNLOG_TOKEN_TIMEOUT_S or "
        "TURNLOG_TURN_TIMEOUT_S. Then run the turn again.",
    ),
    "engine_crashed": (
        "The process of the model's engine ended while it ran the turn: it was killed, it hung, it ran out "
        "of memory, or a kernel failed.",
        "Run the turn again; the model is loaded anew. If it happens again, the server's log has what the "
        "process wrote last, and 'turnlog models' how often it was started.",
    ),
    "shutting_down": (
        "The server was stopped while the turn ran.",
        "Run the turn again. A longer TURNLOG_SHUTDOWN_GRACE_S lets more turns end by themselves.",
    ),
    "model_changed": (
        "While the turn waited, its model name came to mean another model.",
        "Run the turn again; it goes to what the name means now.",
    ),
    "storage_full": (
        "The turn's events could not be stored: the disk is full, or the file takes no writes.",
        "Make room ('turnlog vacuum' gives back that of expired responses), then run the turn again.",
    ),
    "model_unavailable": (
        "There was not enough memory for the model or for the turn.",
        "Unload a model ('turnlog models unload NAME') or raise TURNLOG_MEMORY_BYTES, then run it again.",
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

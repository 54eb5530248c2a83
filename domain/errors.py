"""Why turnlog refuses. One class, one refusal: it carries its data, makes its sentence and names the field.

`code` is the stable string clients switch on (D-06), `param` the request field at fault, if one is.
`app/http/errors.py` says which HTTP status each family gets.
"""

from collections.abc import Iterable
from typing import Literal

StorageRefusal = Literal["full", "read_only", "corrupt"]


class ResponsesError(Exception):
    """Anything turnlog refuses or fails at knowingly. What is outside this tree is a bug."""

    code: str = "server_error"
    param: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if param is not None:
            self.param = param
        if code is not None:
            self.code = code


class InvalidRequestError(ResponsesError):
    """The request breaks a rule; sending it again unchanged will not help."""

    code = "invalid_request"


class IdempotencyKeyReusedError(InvalidRequestError):
    """An idempotency key came with another body than the one it stands for."""

    code = "idempotency_key_reused"
    param = "idempotency-key"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"The idempotency key was already used for '{response_id}' with a different body. "
            "Use a new key for a new request."
        )


class NotFoundError(ResponsesError):
    """What the request names is not there."""

    code = "not_found"


class StorageError(ResponsesError):
    """The store could not do what was asked."""

    code = "storage_error"


class StorageConflictError(StorageError):
    """An event's place is taken, or the place before it is empty; the log has gone on without the writer."""

    code = "storage_conflict"


class StorageRefusedError(StorageError):
    """The store takes no writes until an operator has seen to it. Nothing of the append is stored.

    `code` is storage_full, storage_read_only or storage_corrupt, by `reason`.
    """

    def __init__(self, reason: StorageRefusal, detail: str) -> None:
        super().__init__(f"The events could not be stored: {detail}", code=f"storage_{reason}")
        self.reason = reason


class UnavailableError(ResponsesError):
    """Not now; the same request may succeed later."""

    code = "unavailable"


class ForbiddenError(ResponsesError):
    """The caller may not do this."""

    code = "forbidden"


class RoleForbiddenError(ForbiddenError):
    """The key is not for this."""

    code = "role_not_allowed"

    def __init__(self, wanted: Iterable[str]) -> None:
        roles = " or ".join(wanted) or "one that no key has"
        super().__init__(f"This key lacks the required role: {roles}.")


class OverloadError(ResponsesError):
    """There is too much to do already; the same request is worth sending again in `retry_after_s` (D-38)."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(f"{message} Retry after {retry_after_s}s.")
        self.retry_after_s = retry_after_s


class OwnersShareError(OverloadError):
    """The owner has as much of something as one owner may; it is free again when some of that has ended."""

    code = "owner_limit_exceeded"

    def __init__(self, what: str, limit: int, retry_after_s: int) -> None:
        super().__init__(f"{what} limit reached ({limit} per owner).", retry_after_s)


class QueueFullError(OverloadError):
    """As many requests wait for the model as may; nothing was done for this one (R-031, R-041)."""

    code = "queue_full"

    def __init__(self, stats: str, limit: int | str, retry_after_s: int) -> None:
        super().__init__(f"Model queue full: {stats}, with a limit of {limit} waiting.", retry_after_s)


class ColdQueueFullError(QueueFullError):
    """As many requests as may wait for the model to be loaded (R-032, R-045)."""

    def __init__(self, admitted: int, limit: int, retry_after_s: int) -> None:
        super().__init__(f"{admitted} requests are waiting for the model to load", limit, retry_after_s)


class BacklogFullError(QueueFullError):
    """The requests that wait hold as much memory as they may."""

    def __init__(self, waiting_bytes: int, max_bytes: int, retry_after_s: int) -> None:
        super().__init__(
            f"{waiting_bytes:,} bytes of requests are waiting", f"{max_bytes:,} bytes", retry_after_s
        )


class ModelUnavailableError(UnavailableError):
    """There is no memory for the model now, or for the turn."""

    code = "model_unavailable"
    param = "model"


class BindingChangedError(InvalidRequestError):
    """The name was rebound to another model while the request was in progress (R-138, R-139)."""

    code = "binding_changed"
    param = "model"

    def __init__(self, model: str, when: str) -> None:
        super().__init__(
            f"The model binding changed: '{model}' was rebound to another model {when}. "
            "Send the request again."
        )


class ModelIdentityError(InvalidRequestError):
    """Another model of this process made the chain, whatever its name was (R-145, D-27)."""

    code = "model_identity_mismatch"
    param = "model"

    def __init__(self, previous_id: str, model: str) -> None:
        super().__init__(
            f"The chain of '{previous_id}' was produced by a different model instance than the one that "
            f"'{model}' refers to now. Continue it with its original model, or start a new conversation."
        )


class ModelNotFoundError(NotFoundError):
    """No model of that name is served (R-058)."""

    code = "model_not_found"
    param = "model"

    def __init__(self, model: str, served: Iterable[str]) -> None:
        super().__init__(f"The model '{model}' does not exist. Served models: {', '.join(served)}")


class ResponseNotFoundError(NotFoundError):
    """No response of that id, or it has expired."""

    code = "response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response not found: {response_id}")


class NotEndedError(InvalidRequestError):
    """Only a turn that is over is replayed."""

    code = "not_ended"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"'{response_id}' is still running. Replay it after it has finished.")


class ContentExpiredError(NotFoundError):
    """The response is over its time: what was asked and answered in it is gone (D-14)."""

    code = "content_expired"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"The content of '{response_id}' has expired and cannot be replayed.")


class ItemNotFoundError(NotFoundError):
    """An `item_reference` names an item that is not in the log, or has expired."""

    code = "item_not_found"
    param = "input"

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(
            f"input[{index}] references the item '{item_id}', which was not found or has expired."
        )


class PreviousResponseNotFoundError(NotFoundError):
    """The chain the request continues is not whole any more (R-122); `missing` is the link that is gone."""

    code = "previous_response_not_found"
    param = "previous_response_id"

    def __init__(self, response_id: str, missing: str | None = None) -> None:
        link = "" if missing in (None, response_id) else f", because its ancestor '{missing}' is gone"
        super().__init__(f"Previous response '{response_id}' was not found or has expired{link}.")
        self.response_id = response_id
        self.missing = missing or response_id


class PreviousResponseExpiredError(NotFoundError):
    """The owner's own response, or one before it, is over its time (D-37)."""

    code = "previous_response_expired"
    param = "previous_response_id"

    def __init__(self, response_id: str, expired: str) -> None:
        which = (
            f"'{response_id}' has expired"
            if expired == response_id
            else f"'{response_id}' cannot be continued, because its ancestor '{expired}' has expired"
        )
        super().__init__(f"Previous response {which}. Start a new conversation.")


class PreviousResponseNotCompletedError(InvalidRequestError):
    """Only a committed turn is continued from (D-12)."""

    code = "previous_response_not_completed"
    param = "previous_response_id"

    def __init__(self, response_id: str, status: str) -> None:
        super().__init__(
            f"Previous response '{response_id}' is {status}; only a completed or incomplete response can be "
            "continued. Wait for it to finish, or continue from the response before it."
        )


class ChainTooLongError(InvalidRequestError):
    """The chain has more links than the setting allows, or runs in a circle (D-31)."""

    code = "chain_too_long"
    param = "previous_response_id"

    def __init__(self, response_id: str, limit: int) -> None:
        super().__init__(f"The chain behind '{response_id}' has more than {limit} responses.")


class PromptTooLongError(ResponsesError):
    """A prompt has more tokens than it was asked to have.

    Args:
        is_least: whether that follows from the length of its text, and it may have even more.
    """

    def __init__(self, tokens: int, *, is_least: bool = False) -> None:
        super().__init__(f"The prompt has {tokens} tokens.")
        self.tokens = tokens
        self.is_least = is_least


class ContextLengthError(InvalidRequestError):
    """The prompt leaves no room for an answer in the model's window (R-240, D-34, T2-06).

    Args:
        fixed_tokens: what instructions and tools take of the prompt; they are in every turn.
        room_tokens: what is kept for the answer.
    """

    code = "context_length_exceeded"

    def __init__(
        self, prompt: "PromptTooLongError", window_tokens: int, *, fixed_tokens: int, room_tokens: int
    ) -> None:
        if room_tokens >= window_tokens:
            advice = "Reduce max_output_tokens."
        elif fixed_tokens + room_tokens > window_tokens:
            advice = "Shorten instructions and tools, or use a model with a larger window."
        elif room_tokens > 1:
            advice = "Shorten the input, or reduce max_output_tokens."
        else:
            advice = "Shorten the input, or continue from an earlier response."
        count = f"at least {prompt.tokens}" if prompt.is_least else prompt.tokens
        super().__init__(
            f"context_length_exceeded: the prompt has {count} tokens, {fixed_tokens} of them for "
            f"instructions and tools, and the answer needs room for {room_tokens}; this model's context "
            f"window is {window_tokens}. {advice}"
        )


class TemplateTimeoutError(InvalidRequestError):
    """The conversation was not rendered and encoded in the time, or the memory, there is for it."""

    code = "template_timeout"
    param = "input"

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"Rendering and encoding the conversation exceeded {limit_s:g} s or its memory limit. "
            "Shorten the input, or use a model with a simpler chat template."
        )


class SchemaTooComplexError(InvalidRequestError):
    """A schema was not compiled in the time, or the memory, there is for it."""

    code = "schema_too_complex"

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"Compiling the schema exceeded {limit_s:g} s or its memory limit. Use a simpler schema."
        )


class PromptCrashedEngineError(InvalidRequestError):
    """The prompt was the only one running at two crashes of its model in a row."""

    code = "prompt_crashed_engine"
    param = "input"

    def __init__(self, until: str) -> None:
        super().__init__(
            f"This prompt crashed the engine twice in a row and is refused until {until}. "
            "Send another prompt, or wait."
        )


class ReadTimeoutError(UnavailableError):
    """Reading the log took longer than one request may take."""

    code = "read_timeout"

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"The log was not read within {limit_s:g} s. Ask for less, or retry later.")


class ChainTooLargeError(InvalidRequestError):
    """What was said in the chain is more than one request may read."""

    code = "chain_too_large"
    param = "previous_response_id"

    def __init__(self, response_id: str, limit_bytes: int) -> None:
        super().__init__(
            f"The chain behind '{response_id}' has more than {limit_bytes} bytes. Start a new conversation."
        )


class ChainReadError(StorageError):
    """The store failed while the chain was looked up; whether it is there is not known (R-123)."""

    def __init__(self, response_id: str, cause: Exception) -> None:
        super().__init__(f"Retrieving the previous response '{response_id}' failed: {cause}")


class StorageTimeoutError(UnavailableError):
    """A write the request depends on has not settled yet (R-120)."""

    code = "storage_timeout"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"The response '{response_id}' is still being written. Retry with the same id.")


class StorageUnavailableError(UnavailableError):
    """Too much waits to be stored; no new turn is taken on until that is less."""

    code = "storage_unavailable"

    def __init__(self) -> None:
        super().__init__("The event store is overloaded. Retry later.")


class ShuttingDownError(UnavailableError):
    """The server takes no new turns any more."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("The server is shutting down.")


class IllegalTransitionError(ResponsesError):
    """The response's status does not admit this trigger."""

    code = "illegal_transition"

    def __init__(self, status: str, trigger: str) -> None:
        super().__init__(f"cannot {trigger} a response that is {status}")
        self.status = status
        self.trigger = trigger


class EngineError(ResponsesError):
    """A model or a script cannot be used; raised when an engine is made, before it serves."""

    code = "engine_error"

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
    """Whoever asks may not do this."""

    code = "forbidden"


class RoleForbiddenError(ForbiddenError):
    """The key is not for this."""

    code = "role_not_allowed"

    def __init__(self, wanted: Iterable[str]) -> None:
        roles = " or ".join(wanted) or "one that no key has"
        super().__init__(f"This key may not do this; it takes the role {roles}.")


class OwnersShareError(ResponsesError):
    """The owner has as much of something as one owner may; it is free again when some of that has ended."""

    code = "owner_limit_exceeded"

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"You have {limit} {what}, as many as one owner may. Retry after 1s.")


class QueueFullError(ResponsesError):
    """As many requests wait for the model as may; nothing was done for this one (R-031, R-041)."""

    code = "queue_full"

    def __init__(self, spent: str, limit: int) -> None:
        super().__init__(f"Model queue full: {spent}, with a limit of {limit} waiting. Retry after 1s.")


class ColdQueueFullError(QueueFullError):
    """As many requests as may wait for the model to be loaded (R-032, R-045)."""

    def __init__(self, admitted: int, limit: int) -> None:
        super().__init__(f"{admitted} requests wait for the model to be loaded", limit)


class ModelUnavailableError(UnavailableError):
    """There is no memory for the model now, or for the turn."""

    code = "model_unavailable"
    param = "model"


class BindingChangedError(InvalidRequestError):
    """The name came to mean another model while the request was on its way (R-138, R-139)."""

    code = "binding_changed"
    param = "model"

    def __init__(self, model: str, when: str) -> None:
        super().__init__(
            f"The model binding changed: '{model}' came to mean another model {when}. Send the request again."
        )


class ModelIdentityError(InvalidRequestError):
    """Another model of this process made the chain, whatever its name was (R-145, D-27)."""

    code = "model_identity_mismatch"
    param = "model"

    def __init__(self, previous_id: str, model: str) -> None:
        super().__init__(
            f"The chain of '{previous_id}' was produced by a different model instance than the one that "
            f"'{model}' means now. Continue it with the model that made it, or start a new conversation."
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
        super().__init__(f"'{response_id}' has not ended yet; a turn can be replayed when it is over.")


class ContentExpiredError(NotFoundError):
    """The response is over its time: what was asked and answered in it is gone (D-14)."""

    code = "content_expired"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"The content of '{response_id}' has expired, so it cannot be replayed.")


class ItemNotFoundError(NotFoundError):
    """An `item_reference` names an item that is not in the log, or has expired."""

    code = "item_not_found"
    param = "input"

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(
            f"input[{index}] refers to the item '{item_id}', which was not found or has expired."
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
            "continued. Continue from the one before it, or wait until it has ended."
        )


class ChainTooLongError(InvalidRequestError):
    """The chain has more links than the setting allows, or runs in a circle (D-31)."""

    code = "chain_too_long"
    param = "previous_response_id"

    def __init__(self, response_id: str, limit: int) -> None:
        super().__init__(f"The chain behind '{response_id}' has more than {limit} responses.")


class ContextLengthError(InvalidRequestError):
    """The prompt fills the model's window, no room is left for an answer (R-240, D-34)."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, window_tokens: int) -> None:
        super().__init__(
            f"context_length_exceeded: the prompt has {prompt_tokens} tokens and this model's context window "
            f"is {window_tokens}. Send less, or continue from an earlier response."
        )


class TemplateTimeoutError(InvalidRequestError):
    """The conversation was not rendered and encoded in the time there is for it."""

    code = "template_timeout"
    param = "input"

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"The conversation was not rendered and encoded within {limit_s:g} s. Send less, or use a model "
            "with a simpler chat template."
        )


class SchemaTooComplexError(InvalidRequestError):
    """A schema was not compiled in the time there is for it."""

    code = "schema_too_complex"

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"The schema was not compiled within {limit_s:g} s. Use a simpler one.")


class PromptCrashedEngineError(InvalidRequestError):
    """The prompt was the only one running at two crashes of its model in a row."""

    code = "prompt_crashed_engine"
    param = "input"

    def __init__(self, until: str) -> None:
        super().__init__(
            f"This very prompt ended the engine's process twice in a row. It is refused until {until}; send "
            "another one, or wait."
        )


class TextProcessError(UnavailableError):
    """The process that renders and encodes prompts died twice over one request."""

    code = "engine_crashed"

    def __init__(self) -> None:
        super().__init__(
            "The process that renders prompts died while it worked on this request. Retry later."
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
        super().__init__("The event store is behind with its writes. Retry later.")


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

"""From refusals and framework errors to HTTP answers: the one place that knows status codes (R-004, D-06)."""

import logging
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import Send

from turnlog.adapters.litestar.compressed import READ_ENCODINGS, UnsupportedEncodingError
from turnlog.adapters.litestar.stream import ClientLeftError
from turnlog.adapters.openai.errors import error_envelope, refusal_envelope
from turnlog.adapters.openai.response import error_object
from turnlog.app.access import UnauthenticatedError
from turnlog.app.http.heads import allowed_methods
from turnlog.app.http.request_log import notes
from turnlog.domain.errors import (
    ForbiddenError,
    IdempotencyKeyReusedError,
    InvalidRequestError,
    NotFoundError,
    OverloadError,
    ResponsesError,
    StorageTimeoutError,
    UnavailableError,
)
from turnlog.domain.events import FailureReason, TurnFailed

log = logging.getLogger("turnlog")

Json = dict[str, Any]

_INTERNAL = "Internal error. See turnlog's log for details."


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body is declared as something else than JSON; a web page could send it unasked (D-17)."""

    code = "unsupported_media_type"

    def __init__(self, media_type: str) -> None:
        super().__init__(f"Content-Type is '{media_type}'; expected application/json")


# The first family that an error belongs to decides.
_FAMILIES: tuple[tuple[type[ResponsesError], int, str], ...] = (
    (UnsupportedMediaTypeError, 415, "invalid_request_error"),
    (UnsupportedEncodingError, 415, "invalid_request_error"),
    (IdempotencyKeyReusedError, 422, "invalid_request_error"),
    (InvalidRequestError, 400, "invalid_request_error"),
    # Nobody reads it; the request's line in the log has it.
    (ClientLeftError, 499, "invalid_request_error"),
    (NotFoundError, 404, "not_found_error"),
    (StorageTimeoutError, 503, "storage_timeout"),
    (OverloadError, 429, "rate_limit_error"),
    (UnauthenticatedError, 401, "invalid_request_error"),
    (ForbiddenError, 403, "invalid_request_error"),
    (UnavailableError, 503, "server_error"),
    (ResponsesError, 500, "server_error"),
)

_FRAMEWORK_CODES = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}

_OTHER_APIS = ("/v1/messages", "/v1/embeddings", "/v1/completions")
"""Routes that clients try, and would take for a model that is not there."""

_SERVED = "turnlog serves POST /v1/responses and POST /v1/chat/completions."

_FAILED_TURN_STATUS: dict[FailureReason, int] = {
    "engine_timeout": 504,
    "engine_crashed": 503,
    "shutting_down": 503,
    "model_changed": 400,
    "model_unavailable": 503,
    "constraint_lost": 400,
}


_NOT_WORTH_A_RETRY: tuple[FailureReason, ...] = (
    "cancelled",
    "error",
    "finish_reason_error",
    "stream_exhausted",
    "engine_timeout",
    "engine_crashed",
)
"""A retry would be a whole inference that most likely ends the same way; SDKs retry by the status alone."""


def refuse(_: Request[Any, Any, Any], error: ResponsesError) -> Response[Json]:
    """The answer to a request that was refused."""
    status, body, headers = _refusal(error)
    if status == 500:
        # Not by its sentence, which may quote the request; `app.operations.logs` decides what is shown of it.
        log.error("[responses] a request failed: %s", error.code, exc_info=error)
    return Response(body, status_code=status, headers=headers)


def message_refusal(error: Exception) -> tuple[int, Json, dict[str, str]]:
    """Status, envelope and headers with which a message of a WebSocket is refused, as over HTTP."""
    if isinstance(error, ResponsesError):
        refused = _refusal(error)
        if refused[0] == 500:
            log.error("[responses] a message failed: %s", error.code, exc_info=error)
        return refused
    log.error("[responses] a message failed", exc_info=error)
    return 500, error_envelope("server_error", _INTERNAL, code="server_error"), {}


async def send_refusal(error: ResponsesError, send: Send) -> None:
    """The same as raw ASGI, for what is refused before there is a route."""
    status, body, headers = _refusal(error)
    content = msgspec.json.encode(body)
    fields = {"content-type": "application/json", "content-length": str(len(content))} | headers
    head = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _refusal(error: ResponsesError) -> tuple[int, Json, dict[str, str]]:
    """Status, body and headers."""
    status, kind = next((status, kind) for family, status, kind in _FAMILIES if isinstance(error, family))
    return status, refusal_envelope(kind, error), _headers(error)


def _headers(error: ResponsesError) -> dict[str, str]:
    match error:
        case UnauthenticatedError():
            return {"WWW-Authenticate": "Bearer"}
        case UnsupportedEncodingError():
            return {"Accept-Encoding": ", ".join(READ_ENCODINGS)}
        case OverloadError():
            return {"Retry-After": str(error.retry_after_s)}
        case _:
            return {}


def refuse_by_framework(request: Request[Any, Any, Any], error: HTTPException) -> Response[Json]:
    """The answer to what Litestar itself refuses: unknown routes, methods, bodies that are too large."""
    status = error.status_code
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    message = error.detail
    if status == 404:
        message = f"Route not found: {request.method} {request.url.path}"
        if request.url.path in _OTHER_APIS:
            message = f"{message}. {_SERVED}"
    elif status == 405:
        allowed = (error.headers or {}).get("Allow")
        message = f"Method not allowed: use {allowed}" if allowed else "Method not allowed"
    elif status == 413:
        message = "Request body too large"
    envelope = error_envelope(kind, message, code=refusal_code(error))
    headers = {
        name: allowed_methods(value) if name.lower() == "allow" else value
        for name, value in (error.headers or {}).items()
    }
    return Response(envelope, status_code=status, headers=headers)


def refusal_code(error: Exception) -> str:
    """The code that the answer to this error has."""
    match error:
        case ResponsesError():
            return error.code
        case HTTPException():
            return _FRAMEWORK_CODES.get(error.status_code, "invalid_request")
        case _:
            return "server_error"


def crash(request: Request[Any, Any, Any], error: Exception) -> Response[Json]:
    """The answer when turnlog itself is at fault; the traceback goes to the log, not to the client."""
    # The route as it is declared: the path is the client's.
    log.error("[responses] %s %s failed", request.method, request.scope.get("path_template"), exc_info=error)
    return Response(error_envelope("server_error", _INTERNAL, code="server_error"), status_code=500)


def failed_turn(
    failed: TurnFailed, response_id: str, headers: dict[str, str], request: Request[Any, Any, Any]
) -> Response[Json]:
    """The answer to a request whose turn was accepted and then failed (D-32)."""
    status = _FAILED_TURN_STATUS.get(failed.reason, 500)
    kind = "invalid_request_error" if status == 400 else "server_error"
    code, param = error_object(failed)["code"], "model" if failed.reason == "model_changed" else None
    notes(request.scope).code, notes(request.scope).param = code, param
    body = error_envelope(kind, failed.message, code=code, param=param)
    own = {"X-Response-Id": response_id}
    if failed.reason in _NOT_WORTH_A_RETRY:
        own["X-Should-Retry"] = "false"
    return Response(body, status_code=status, headers=headers | own)

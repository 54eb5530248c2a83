"""From refusals and framework errors to HTTP answers: the one place that knows status codes (R-004, D-06)."""

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from adapters.openai.errors import error_envelope, refusal_envelope
from adapters.openai.response import error_object
from domain.errors import (
    InvalidRequestError,
    NotFoundError,
    ResponsesError,
    StorageTimeoutError,
    UnavailableError,
)
from domain.events import FailureReason, TurnFailed

log = logging.getLogger("turnlog")

Json = dict[str, Any]


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body is declared as something else than JSON; a web page could send it unasked (D-17)."""

    code = "unsupported_media_type"

    def __init__(self, media_type: str) -> None:
        super().__init__(f"Content-Type is '{media_type}'; it must be application/json")


# The first family that an error belongs to decides.
_FAMILIES: tuple[tuple[type[ResponsesError], int, str], ...] = (
    (UnsupportedMediaTypeError, 415, "invalid_request_error"),
    (InvalidRequestError, 400, "invalid_request_error"),
    (NotFoundError, 404, "not_found_error"),
    (StorageTimeoutError, 503, "storage_timeout"),
    (UnavailableError, 503, "server_error"),
    (ResponsesError, 500, "server_error"),
)

_FRAMEWORK_CODES = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}

_FAILED_TURN_STATUS: dict[FailureReason, int] = {
    "engine_timeout": 504,
    "shutting_down": 503,
    "model_changed": 400,
}


def refuse(_: Request[Any, Any, Any], error: ResponsesError) -> Response[Json]:
    """The answer to a request that was refused."""
    status, kind = next((status, kind) for family, status, kind in _FAMILIES if isinstance(error, family))
    if status == 500:
        log.error("[responses] %s", error.message)
    return Response(refusal_envelope(kind, error), status_code=status)


def refuse_by_framework(request: Request[Any, Any, Any], error: HTTPException) -> Response[Json]:
    """The answer to what Litestar itself refuses: unknown routes, methods, bodies that are too large."""
    status = error.status_code
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    message = error.detail
    if status == 404:
        message = f"There is no {request.method} {request.url.path}"
    elif status == 405:
        message = "Method not allowed"
    elif status == 413:
        message = "Request body too large"
    code = _FRAMEWORK_CODES.get(status, "invalid_request")
    return Response(error_envelope(kind, message, code=code), status_code=status, headers=error.headers)


def crash(request: Request[Any, Any, Any], error: Exception) -> Response[Json]:
    """The answer when turnlog itself is at fault; the traceback goes to the log, not to the client."""
    log.error("[responses] %s %s failed", request.method, request.url.path, exc_info=error)
    message = "Something went wrong inside turnlog; its log has the details."
    return Response(error_envelope("server_error", message, code="server_error"), status_code=500)


def failed_turn(failed: TurnFailed, response_id: str) -> Response[Json]:
    """The answer to a request whose turn was accepted and then failed (D-32)."""
    status = _FAILED_TURN_STATUS.get(failed.reason, 500)
    kind = "invalid_request_error" if status == 400 else "server_error"
    body = error_envelope(kind, failed.message, code=error_object(failed)["code"])
    return Response(body, status_code=status, headers={"X-Response-Id": response_id})

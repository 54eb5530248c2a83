"""The error envelope of the API (R-003, D-06)."""

from typing import Any

from turnlog.domain.errors import ResponsesError


def error_envelope(kind: str, message: str, *, code: str, param: str | None = None) -> dict[str, Any]:
    """The body of every error answer; `kind` is the API's `error.type`."""
    return {"error": {"type": kind, "message": message, "code": code, "param": param}}


def refusal_envelope(kind: str, error: ResponsesError) -> dict[str, Any]:
    """The body of an answer for a `ResponsesError`."""
    return error_envelope(kind, error.message, code=error.code, param=error.param)

"""One log line for each refused request and, if so configured, for every other.

Each request has an id: `x-request-id` in its answer, `request_id` in every log line about it.
"""

import logging
import re
import time
from dataclasses import dataclass
from typing import Any, cast

from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, clear_contextvars

from turnlog.adapters.uvicorn import request_id
from turnlog.app.http.documents import documented_names
from turnlog.domain.errors import ResponsesError

log = logging.getLogger("turnlog")
stranger_log = logging.getLogger("turnlog.strangers")
"""For what is refused before anybody has shown a key: `app.operations.logs` bounds these lines."""

_NOTES = "turnlog.notes"
_CLIENTS_OWN = ("x-client-request-id", "x-request-id")
_LONGEST_ID = 128
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._:/+=@-]")


@dataclass
class Notes:
    """Facts about a request for its log line. The route is the declared one, as a path may hold anything."""

    route: str = "(no route)"
    response_id: str | None = None
    owner: str | None = None
    code: str | None = None
    param: str | None = None


def notes(scope: Any) -> Notes:
    """The notes about a request."""
    found: Notes = scope[_NOTES]
    return found


def note_refusal(scope: Any, error: ResponsesError) -> None:
    """Record in the request's line why it was refused."""
    notes(scope).code, notes(scope).param = error.code, error.param


class RequestLog:
    """An ASGI middleware; the fields about a turn come from the turn's log context.

    Args:
        every: whether to log requests that are not refused, too.
    """

    def __init__(self, app: ASGIApp, *, every: bool) -> None:
        self._app = app
        self._every = every

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and log it when its answer has ended or its client is gone."""
        assert scope["type"] in (ScopeType.HTTP, ScopeType.WEBSOCKET), "lifespan events are not served"
        # The loop may run a connection's first task in the context of an earlier request.
        clear_contextvars()
        cast(Any, scope)[_NOTES] = found = Notes()
        bind_contextvars(request_id=request_id(scope), **_clients_own_id(scope))
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        began_s = time.monotonic()
        try:
            await self._app(scope, receive, noting)
        finally:
            if self._every or status >= 400:
                log_request(cast(Any, scope)["method"], status, began_s, found)


def log_request(method: str, status: int, began_s: float, found: Notes) -> None:
    """Log the line of a request, or of a WebSocket's message, that began at `began_s` (monotonic)."""
    fields = {"status": status, "duration_ms": round((time.monotonic() - began_s) * 1000, 1)}
    by = log if found.owner else stranger_log
    by.info("[http] %s %s", method, found.route, extra=fields | _fields(found, status))


def _fields(found: Notes, status: int) -> dict[str, object]:
    fields = {
        "response_id": found.response_id if 200 <= status < 300 else None,
        "owner": found.owner,
        "code": found.code,
        "param": found.param and without_content(found.param),
    }
    return {name: value for name, value in fields.items() if value is not None}


def without_content(param: str) -> str:
    """The part of a field's path that the API names; the rest may be a client's own text."""
    kept = ""
    for step in re.split(r"(?=[.\[])", param):
        if not step.startswith("[") and step.removeprefix(".") not in documented_names():
            break
        kept += step
    return kept or "(unknown)"


def _clients_own_id(scope: Any) -> dict[str, str]:
    """The client's own id for the request, if any; characters that could forge a line are replaced."""
    headers = Headers.from_scope(scope)
    own = next((headers[name] for name in _CLIENTS_OWN if name in headers), None)
    return {"client_request_id": _NOT_IN_IDS.sub("_", own[:_LONGEST_ID])} if own else {}

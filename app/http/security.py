"""Security middleware in front of the router: host names, origins and keys are checked on the raw request.

Refused requests never reach the router, so even routes, methods and paths nobody thought of are protected.
The roles that a route admits are checked after routing (`app.access`).
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from turnlog.adapters.uvicorn import admit
from turnlog.app.access import Access, UnauthenticatedError, check_route, is_open
from turnlog.app.http.errors import send_refusal
from turnlog.app.http.origins import AllowList, is_loopback
from turnlog.app.http.request_log import note_refusal, notes
from turnlog.app.http.standing import Standing
from turnlog.domain.errors import ResponsesError
from turnlog.domain.ids import response_id
from turnlog.domain.owners import Caller

_PREFLIGHT_AGE_S = b"600"
_LEAVING = "turnlog.leaving"


class SecurityMiddleware:
    """An ASGI application that passes permitted requests on to `app`.

    Args:
        refused: called with the error code of each request refused here.
    """

    def __init__(
        self, app: ASGIApp, access: Access, allowed: AllowList, refused: Callable[[str], None]
    ) -> None:
        self._app = app
        self._access = access
        self._allowed = allowed
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] in (ScopeType.HTTP, ScopeType.WEBSOCKET), "lifespan events are not served"
        await self._serve(cast(HTTPScope, scope), receive, send)

    async def _serve(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        send = self._shared(scope, send)
        try:
            self._check_sender(scope)
            if self._is_preflight(scope):
                await _allow_preflight(scope, send)
                return
            caller = self._caller(scope)
        except ResponsesError as error:
            note_refusal(scope, error)
            self._refused(error.code)
            await send_refusal(error, send)
            return
        scope["user"] = caller
        if caller:
            admit(scope)
            notes(scope).owner = caller.owner
        # A WebSocket looks its key up at each message.
        if caller and scope["type"] == ScopeType.HTTP:
            standing = Standing(partial(self._access.still_in, caller), scope, receive, send)
            receive, send = standing.receive, standing.send
        with ExitStack() as leaving:
            cast(Any, scope)[_LEAVING] = leaving
            await self._app(scope, receive, send)

    def _check_sender(self, scope: HTTPScope) -> None:
        server = scope["server"]
        self._allowed.check_host(_all(scope, b"host"), server and server[0], scope["http_version"])
        is_socket = scope["type"] != ScopeType.HTTP
        self._allowed.check_origin(
            _all(scope, b"origin"), _first(scope, b"sec-fetch-site"), is_read=is_socket
        )

    def _caller(self, scope: HTTPScope) -> Caller | None:
        """The caller; None without a key on a route that needs none."""
        client, server = scope["client"], scope["server"]
        # When the server listens on one address only, the command line connects from that same address.
        from_here = client is not None and (is_loopback(client[0]) or (server and client[0] == server[0]))
        try:
            return self._access.identify(_credential(scope), from_here=bool(from_here))
        except UnauthenticatedError:
            if is_open(scope["method"], scope["path"]):
                return None
            raise

    # ── CORS ──────────────────────────────────────────────────────────────────────────────────────

    def _shared(self, scope: HTTPScope, send: Send) -> Send:
        """`send` that lets pages of the allowed origins read the answer; else `send` unchanged (D-17)."""
        if not self._allowed.origins:
            return send
        headers = [(b"vary", b"origin")]
        origin = _first(scope, b"origin")
        if origin in self._allowed.origins:
            headers += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (
                    b"access-control-expose-headers",
                    b"retry-after, x-response-id, x-request-id, idempotent-replayed",
                ),
            ]

        async def sharing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        return sharing

    def _is_preflight(self, scope: HTTPScope) -> bool:
        return (
            scope["method"] == "OPTIONS"
            and _first(scope, b"origin") in self._allowed.origins
            and _first(scope, b"access-control-request-method") is not None
        )


async def _allow_preflight(scope: HTTPScope, send: Send) -> None:
    """Browsers send the preflight without a key; the real request is checked like any other."""
    headers = [
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-max-age", _PREFLIGHT_AGE_S),
    ]
    if asked := _first(scope, b"access-control-request-headers"):
        headers.append((b"access-control-allow-headers", asked.encode("latin-1")))
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _credential(scope: HTTPScope) -> str | None:
    """The key that was sent; None if there is none, or if there are two different ones."""
    sent = set(_all(scope, b"x-api-key"))
    for value in _all(scope, b"authorization"):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            sent.add(key.strip())
    return sent.pop() if len(sent) == 1 else None


def _all(scope: HTTPScope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _first(scope: HTTPScope, wanted: bytes) -> str | None:
    return next(iter(_all(scope, wanted)), None)


# ── for routes ────────────────────────────────────────────────────────────────────────────────────


# Async, for Litestar calls others on a thread, and a body that is read that late may find its client gone.
async def guard_route(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Admit a caller to a route if its role permits (Litestar's guard of every route).

    From here on a response that is named as Chat Completions names it has its own id.
    """
    scope = cast(HTTPScope, connection.scope)
    found = notes(scope)
    if (given := scope["path_params"].get("response_id")) is not None:
        found.response_id = scope["path_params"]["response_id"] = response_id(given)
    found.route = scope["path_template"]
    check_route(scope["user"], scope["method"], scope["path_template"])


# Needs the service only to come after it: two dependencies at once are tasks, and a body that is read that
# late may find its client gone.
def caller(request: Request[Any, Any, Any], service: Any) -> Caller:
    """The request's sender: the dependency `caller` of every route that needs a key.

    Raises:
        UnauthenticatedError: there is no known sender; only open routes get that far.
    """
    known: Caller | None = request.scope["user"]
    if known is None:
        raise UnauthenticatedError(given=False)
    return known


def until_it_ends(request: Request[Any, Any, Any]) -> ExitStack:
    """Contexts entered on this stack are exited when the request is over, however it ends."""
    leaving: ExitStack = cast(Any, request.scope)[_LEAVING]
    return leaving

"""WebSocket mode: the handshake, which is checked like a request, and what refuses it.

Until the connection is accepted, refusals are HTTP answers; from then on, messages (`socket_connection`).
"""

from typing import Any, cast

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from turnlog.adapters.uvicorn import request_id
from turnlog.app.access import check_route
from turnlog.app.http.errors import send_refusal
from turnlog.app.http.request_log import note_refusal, notes
from turnlog.app.http.service import Service
from turnlog.app.http.socket_connection import Connection, SocketSettings
from turnlog.domain.errors import NotFoundError, ResponsesError

PATH = "/v1/responses"


class WebSocketNotFoundError(NotFoundError):
    """The handshake is for another path."""

    code = "route_not_found"

    def __init__(self) -> None:
        super().__init__(f"No WebSocket at this path; open one at {PATH}.")


def handshakes(app: ASGIApp) -> ASGIApp:
    """An application that sees a handshake as the GET that it is, and may refuse it by an HTTP answer."""

    async def with_handshakes(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.WEBSOCKET:
            await app(scope, receive, send)
            return

        async def refusing(message: Message) -> None:
            told: Any = message
            if told["type"] == "http.response.start" and (own := request_id(scope)):
                told["headers"] = [*told["headers"], (b"x-request-id", own.encode())]
            if told["type"].startswith("http."):
                told = {**told, "type": f"websocket.{told['type']}"}
            await send(told)

        cast(Any, scope)["method"] = "GET"
        await app(scope, receive, refusing)

    return with_handshakes


def by_protocol(http: ASGIApp, sockets: ASGIApp) -> ASGIApp:
    """One application of two."""

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        await (sockets if scope["type"] == ScopeType.WEBSOCKET else http)(scope, receive, send)

    return either


class WebSocketMode:
    """The ASGI application for WebSockets; it comes after the security middleware."""

    def __init__(self, service: Service, settings: SocketSettings) -> None:
        self._service = service
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        told: Any = scope
        try:
            if told["path"] != PATH:
                raise WebSocketNotFoundError
            notes(scope).route = PATH
            check_route(told["user"], "GET", PATH)
            with self._service.quotas.connected(told["user"].owner):
                await receive()  # "websocket.connect"
                await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
                connection = Connection(
                    self._service, self._settings, scope=scope, receive=receive, send=send
                )
                await connection.serve()
        except ResponsesError as error:
            note_refusal(scope, error)
            self._service.metrics.refused(error.code)
            await send_refusal(error, send)

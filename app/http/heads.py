"""HEAD wherever there is GET (RFC 9110, 9.3.2): the same answer, of which only the head is sent."""

from typing import Any, cast

from litestar.types import ASGIApp, Message, Receive, Scope, Send


class Heads:
    """An ASGI application around another that knows nothing of HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        # The server leaves the body out by the scope that it has itself.
        method = cast(Any, scope)["method"]
        if method == "HEAD":
            await self._app(cast(Scope, {**scope, "method": "GET"}), receive, _ending(send))
        elif method == "OPTIONS":
            await self._app(scope, receive, _allowing(send))
        else:
            await self._app(scope, receive, send)


def allowed_methods(allow: str) -> str:
    """The value of an `Allow` header, with HEAD."""
    methods = {each.strip() for each in allow.split(",")}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def _ending(send: Send) -> Send:
    """`send` that ends the answer after its head, so that a stream does not go on for nobody."""
    ended = False

    async def ending(message: Message) -> None:
        nonlocal ended
        if message["type"] == "http.response.start":
            await send(message)
        elif not ended:
            ended = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return ending


def _allowing(send: Send) -> Send:
    async def allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (name, allowed_methods(value.decode()).encode() if name.lower() == b"allow" else value)
                for name, value in message["headers"]
            ]
        await send(message)

    return allowing

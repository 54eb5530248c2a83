"""How long an answer took the server, by the header `openai-processing-ms`, as OpenAI's answers have it."""

import time

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send


class ProcessingTime:
    """An ASGI application around another; puts the header on JSON answers that are no refusals."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert scope["type"] in (ScopeType.HTTP, ScopeType.WEBSOCKET), "lifespan events are not served"
        began_s = time.monotonic()

        async def timing(message: Message) -> None:
            # Not on refusals: it would tell what was looked up before a foreign id was called missing (D-18).
            if (
                message["type"] == "http.response.start"
                and message["status"] < 300
                and _is_json(message["headers"])
            ):
                took_ms = round((time.monotonic() - began_s) * 1000)
                message["headers"] = [*message["headers"], (b"openai-processing-ms", b"%d" % took_ms)]
            await send(message)

        await self._app(scope, receive, timing)


def _is_json(headers: object) -> bool:
    assert isinstance(headers, list | tuple)
    return any(
        name.lower() == b"content-type" and value.startswith(b"application/json") for name, value in headers
    )

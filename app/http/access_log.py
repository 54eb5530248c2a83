"""One log line for each request, if the setting says so."""

import logging
import time

from litestar.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("turnlog")


class AccessLog:
    """An ASGI application around another; what the line says of a turn comes from the turn's context."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and log it when its answer has ended or its client is gone."""
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began_s = time.monotonic()
        try:
            await self._app(scope, receive, noting)
        finally:
            # The route as it is declared: the path may hold anything.
            route = scope.get("path_template") or "(no route)"
            known: dict[str, object] = {
                "status": status,
                "duration_ms": round((time.monotonic() - began_s) * 1000, 1),
            }
            if 200 <= status < 300 and "response_id" in scope.get("path_params", {}):
                known["response_id"] = scope["path_params"]["response_id"]
            log.info("[http] %s %s", scope.get("method", "?"), route, extra=known)

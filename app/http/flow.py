"""Large bodies in both directions: counted while they are in flight, and sent as their client takes them."""

from typing import Any, cast

from litestar.datastructures import Headers
from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

from turnlog.adapters.openai.frames import PIECE_BYTES
from turnlog.app.http.errors import send_refusal
from turnlog.app.http.request_log import note_refusal
from turnlog.app.http.service import Service
from turnlog.app.turns.in_flight import Holding
from turnlog.domain.errors import OwnersShareError
from turnlog.domain.owners import LOCAL_OWNER


class Flow:
    """An ASGI middleware behind the decompression of bodies.

    The bytes of a request and of its answer count as in flight until the request is over; a stream's do not,
    as it is sent piece by piece. More than the owner may have is 429 (`Holding.grow`).
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        caller = cast(Any, scope).get("user")
        holding = Holding(self._service.in_flight, caller.owner if caller else LOCAL_OWNER)

        async def counted() -> HTTPReceiveMessage:
            message = cast(HTTPReceiveMessage, await receive())
            holding.grow(len(cast(Any, message).get("body", b"")))
            return message

        is_refused = False

        async def paced(message: Message) -> None:
            nonlocal is_refused
            if message["type"] != "http.response.start":
                if not is_refused:
                    await _send_in_pieces(message, send)
                return
            try:
                holding.grow(_length(message))
            except OwnersShareError as error:
                is_refused = True
                note_refusal(scope, error)
                self._service.metrics.refused(error.code)
                await send_refusal(error, send)
            else:
                await send(message)

        try:
            await self._app(scope, counted, paced)
        finally:
            holding.release()


def _length(start: Any) -> int:
    """How long the answer is; 0 for a stream, whose head does not say."""
    return int(Headers(start["headers"]).get("content-length", "0"))


async def _send_in_pieces(message: Any, send: Send) -> None:
    """Send a body so that the connection holds no more than a piece of it for a client that does not read."""
    body = memoryview(message.get("body", b""))
    for start in range(0, len(body) or 1, PIECE_BYTES):
        more_body = start + PIECE_BYTES < len(body) or message.get("more_body", False)
        piece: Any = message | {"body": body[start : start + PIECE_BYTES], "more_body": more_body}
        await send(piece)

"""An SSE answer as raw ASGI: sent as the client takes it, and a client that hangs up is noticed at once.

Litestar's own streaming responses send comments and line ends of their own and hop threads; a raw `send`
alone never learns of a disconnect.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from litestar import Response
from litestar.enums import ScopeType
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Receive, Scope, Send

from turnlog.adapters.uvicorn import was_cut_off
from turnlog.domain.errors import ResponsesError

_Result = TypeVar("_Result")

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    # Proxies that buffer would hold back frames until the turn is over.
    "x-accel-buffering": "no",
}


class FrameStream(Response[None]):
    """Sends `chunks` as they come, and each only when the client has taken nearly all before it.

    A client that leaves bytes untaken for too long is cut off by its connection (R-310).

    Args:
        chunks: bytes to send, none of them long; the answer ends with them.
        on_disconnect: called if the client hangs up before the last chunk is sent. A client that is cut
            off has not hung up.
        headers: those that an SSE answer has beside the usual ones.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        *,
        on_disconnect: Callable[[], None] = lambda: None,
        headers: Mapping[str, str] = {},
    ) -> None:
        super().__init__(None, headers=HEADERS | dict(headers))
        self._chunks = chunks
        self._on_disconnect = on_disconnect

    def to_asgi_response(self, *_args: Any, **_kwargs: Any) -> ASGIResponse:
        """The ASGI application that sends the frames (Litestar's seam for own responses)."""
        return _ASGIFrameStream(self._chunks, self._on_disconnect, self.headers)


class _ASGIFrameStream(ASGIResponse):
    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        on_disconnect: Callable[[], None],
        headers: dict[str, str],
    ) -> None:
        super().__init__()
        # Own headers: those of ASGIResponse say that the body is empty.
        self._head = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._chunks = chunks
        self._on_disconnect = on_disconnect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._head})
        if not await finishes_first(self._send_all(send), receive) and not was_cut_off(scope):
            self._on_disconnect()

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                # A send that need not wait yields to nobody; a long re-tell must not hold up other streams.
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class ClientLeftError(ResponsesError):
    """The client hung up before there was an answer, and what it asked for was given up."""

    code = "client_left"

    def __init__(self) -> None:
        super().__init__("The client has left.")


LEAVERS_WORK_S = 1.0
"""How long goes on what a client asked for and no longer waits for."""


async def while_connected(work: Coroutine[Any, Any, _Result], receive: Receive) -> _Result:
    """What comes of `work`, which is cancelled a moment after the client has hung up.

    In that moment a turn as a rule begins, and then the log has that its client left. The request's body must
    have been read.

    Raises:
        ClientLeftError: it has hung up, and nothing came of it.
    """
    working = asyncio.ensure_future(work)
    try:
        if not await finishes_first(asyncio.wait((working,)), receive):
            await asyncio.wait((working,), timeout=LEAVERS_WORK_S)
        if not working.done():
            raise ClientLeftError
        return await working
    finally:
        working.cancel()


def ending_with_client(app: ASGIApp) -> ASGIApp:
    """A middleware that gives up a GET when its client hangs up: it changes nothing, so it may stop."""

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["method"] in ("GET", "HEAD"):
            await finishes_first(app(scope, receive, send), receive)
        else:
            await app(scope, receive, send)

    return watched


async def finishes_first(work: Awaitable[object], receive: Receive) -> bool:
    """Whether `work` was done before the client hung up; if not, it is cancelled.

    The request's body must have been read. What `work` raises is raised.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        await working
        return True
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

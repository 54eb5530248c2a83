"""A request lasts no longer than the right to send it: keys are looked up again when it acts and answers."""

import asyncio
from collections.abc import Callable
from typing import Any

from litestar.types import HTTPReceiveMessage, Message, Receive, Scope, Send

from turnlog.adapters.uvicorn import cut_off
from turnlog.app.access import UnauthenticatedError
from turnlog.app.http.errors import send_refusal
from turnlog.app.http.request_log import note_refusal

LOOK_AGAIN_S = 0.5
"""How often a request that waits looks whether its key was revoked."""


class Standing:
    """`receive` and `send` of a request while `still_in` is true.

    Once it is not, a request without an answer gets 401, and one whose answer has begun loses its connection.
    A body that comes too late makes nothing happen, and whoever waits for the client to leave sees it leave.
    """

    def __init__(self, still_in: Callable[[], bool], scope: Scope, receive: Receive, send: Send) -> None:
        self._still_in = still_in
        self._scope = scope
        self._receive = receive
        self._send = send
        self._acts = False
        self._answers = False
        self._is_refused = False

    async def receive(self) -> Any:
        """What comes next.

        Raises:
            UnauthenticatedError: the caller may not do any more what the whole request asks for.
        """
        coming = asyncio.ensure_future(self._receive())
        try:
            while self._still_in():
                done, _ = await asyncio.wait((coming,), timeout=LOOK_AGAIN_S)
                if done and self._still_in():
                    return self._noted(coming.result())
        finally:
            coming.cancel()
        if not self._acts:
            raise UnauthenticatedError(given=True)
        if self._answers:
            cut_off(self._scope)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if self._still_in():
            self._answers = True
            await self._send(message)
        elif self._answers:
            cut_off(self._scope)
        elif not self._is_refused:
            self._is_refused = True
            error = UnauthenticatedError(given=True)
            note_refusal(self._scope, error)
            await send_refusal(error, self._send)

    def _noted(self, message: Any) -> HTTPReceiveMessage:
        self._acts |= not message.get("more_body", False)
        return message  # type: ignore[no-any-return]

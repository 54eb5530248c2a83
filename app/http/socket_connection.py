"""One connection of WebSocket mode: its streams, what waits in them, and when it closes."""

import asyncio
import logging
import time
from collections import deque
from contextlib import aclosing
from typing import Any, NamedTuple, cast

from litestar.types import Receive, Scope, Send

from turnlog.adapters.litestar.stream import ClientLeftError, finishes_first, while_connected
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.socket_messages import Create, decode_message, error_message, frame_message
from turnlog.adapters.uvicorn import mark_idle
from turnlog.app.access import UnauthenticatedError
from turnlog.app.http.errors import message_refusal
from turnlog.app.http.request_log import Notes, log_request
from turnlog.app.http.responses import stream_frames
from turnlog.app.http.service import Service
from turnlog.app.http.standing import LOOK_AGAIN_S
from turnlog.app.operations.logs import turn_context
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.unstored import UnstoredTurns
from turnlog.domain.errors import InvalidRequestError, OverloadError, ResponsesError
from turnlog.domain.events import TurnCommitted
from turnlog.domain.owners import Caller
from turnlog.domain.request import TurnRequest

log = logging.getLogger("turnlog")

MOST_RUNNING = 16
MOST_STREAMS = 32
MOST_WAITING = 64
MOST_WAITING_BYTES = 16 * 1024 * 1024
"""What one connection may have running and waiting. A message that is alone may be as long as a body."""

_SMALL_MESSAGE_BYTES = 64 * 1024
"""As with bodies: a longer message is decoded on a thread."""

GOING_AWAY = 1001
POLICY_VIOLATION = 1008


class SocketSettings(NamedTuple):
    """How long a connection lasts, and how long without a message or a turn; the bounds of a message.

    Args:
        access_log: whether turns that are not refused are logged, too.
    """

    lifetime_s: float
    idle_s: float
    limits: RequestLimits
    access_log: bool


class ConnectionLimitError(InvalidRequestError):
    """The connection has lasted as long as one may."""

    code = "websocket_connection_limit_reached"

    def __init__(self, lifetime_s: float) -> None:
        super().__init__(
            f"WebSocket connection limit reached ({lifetime_s / 60:g} minutes). "
            "Open a new connection to continue."
        )


class TooManyMessagesError(OverloadError):
    """The connection has as much waiting as may."""

    code = "too_many_waiting_messages"

    def __init__(self) -> None:
        super().__init__("Too many messages wait on this connection.", 1)


class Stream:
    """The turns of one stream id, first in, first out."""

    def __init__(self) -> None:
        self.waiting: deque[Create] = deque()
        self.task: asyncio.Task[None] | None = None


class Connection:
    """Serves one client until either side closes.

    Args:
        scope: of the handshake, with the caller.
    """

    def __init__(
        self, service: Service, settings: SocketSettings, *, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._service = service
        self._settings = settings
        self._scope = scope
        self._receive: Any = receive
        self._send: Any = send
        self._caller: Caller = cast(Any, scope)["user"]
        self._streams: dict[str | None, Stream] = {}
        self._slots = asyncio.Semaphore(MOST_RUNNING)
        self._unstored = UnstoredTurns()
        self._gone = asyncio.Event()
        self._began_s = self._active_s = time.monotonic()

    async def serve(self) -> None:
        """Take messages until the connection is closed, then see its turns out."""
        watching = asyncio.create_task(self._watch())
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                if not self._gone.is_set():
                    await self._take(message)
        finally:
            self._gone.set()
            watching.cancel()
            if tasks := [stream.task for stream in self._streams.values() if stream.task]:
                await asyncio.wait(tasks)

    # ── what comes in ──

    async def _take(self, message: Any) -> None:
        """Queue what a message asks for, or refuse it; what is broken closes nothing."""
        self._mark_active()
        began_s = time.monotonic()
        try:
            self._check_standing()
            self._enqueue(await self._decoded(message))
        except ResponsesError as error:
            await self._refuse(error, None, began_s)

    async def _decoded(self, message: Any) -> Create:
        text = message.get("text")
        if text is None:
            raise InvalidRequestError(
                "Messages are JSON in text frames; this one was binary, or no UTF-8.", code="invalid_message"
            )
        body = text.encode()
        if len(body) > _SMALL_MESSAGE_BYTES:
            return await asyncio.to_thread(decode_message, body, self._settings.limits)
        return decode_message(body, self._settings.limits)

    def _enqueue(self, create: Create) -> None:
        if self._is_over:
            raise ConnectionLimitError(self._settings.lifetime_s)
        waiting = [each for stream in self._streams.values() for each in stream.waiting]
        waiting_bytes = sum(each.size_bytes for each in waiting)
        if len(waiting) >= MOST_WAITING or (
            waiting and waiting_bytes + create.size_bytes > MOST_WAITING_BYTES
        ):
            raise TooManyMessagesError
        if create.stream_id not in self._streams and len(self._streams) >= MOST_STREAMS:
            raise InvalidRequestError(
                f"A connection has at most {MOST_STREAMS} streams.",
                param="stream_id",
                code="too_many_streams",
            )
        stream = self._streams.setdefault(create.stream_id, Stream())
        stream.waiting.append(create)
        if stream.task is None:
            stream.task = asyncio.create_task(self._run_stream(stream))

    # ── turns ──

    async def _run_stream(self, stream: Stream) -> None:
        while stream.waiting and not self._gone.is_set():
            async with self._slots:
                # A task of its own, for the context of its log lines.
                await asyncio.create_task(self._run(stream.waiting.popleft()))
        stream.task = None
        self._mark_active()

    async def _run(self, create: Create) -> None:
        """Run a turn and send its frames, or say why not."""
        began_s = time.monotonic()
        previous = None
        try:
            request = create.request()
            previous = request.previous_response_id
            self._check_standing()
            with self._service.quotas.streaming(self._caller.owner):
                turn = await while_connected(self._begin(request, create.size_bytes), self._until_gone)
                turn_context(turn.response.id, self._caller.owner)
                try:
                    has_ended = await finishes_first(
                        self._stream(turn, create.stream_id, obfuscated=request.obfuscate), self._until_gone
                    )
                except UnauthenticatedError:
                    turn.leave()
                    raise
                if not has_ended:
                    turn.leave()
            self._log(200, began_s, Notes(response_id=turn.response.id))
            self._unstored.keep(turn.response, create.size_bytes)
            if turn.response.ended and not isinstance(turn.response.ended, TurnCommitted):
                self._unstored.drop(previous)
        except ClientLeftError:
            pass
        except Exception as error:
            self._unstored.drop(previous)
            await self._refuse(error, create.stream_id, began_s)

    async def _begin(self, request: TurnRequest, size_bytes: int) -> LiveTurn:
        owner = self._caller.owner
        with self._service.quotas.beginning(owner):
            return await self._service.turns.begin(
                request, owner, size_bytes=size_bytes, unstored=self._unstored
            )

    async def _stream(self, turn: LiveTurn, stream_id: str | None, *, obfuscated: bool) -> None:
        heartbeat_s = self._service.heartbeat_s
        frames = stream_frames(turn.frames, heartbeat_s=heartbeat_s, obfuscated=obfuscated)
        async with aclosing(frames) as chunks:
            async for chunk in chunks:
                for frame in chunk:
                    self._check_standing()
                    await self._tell(frame_message(frame, stream_id))
                # A send that need not wait yields to nobody.
                await asyncio.sleep(0)

    # ── what goes out ──

    async def _tell(self, message: str) -> None:
        """Send a message, unless nobody takes it any more."""
        if self._gone.is_set():
            return
        try:
            await self._send({"type": "websocket.send", "text": message})
        except OSError:
            self._gone.set()
        except RuntimeError:
            if not self._gone.is_set():  # else it was closed while this waited for the reader
                raise

    async def _refuse(self, error: Exception, stream_id: str | None, began_s: float) -> None:
        status, envelope, headers = message_refusal(error)
        code, param = envelope["error"]["code"], envelope["error"]["param"]
        self._service.metrics.refused(code)
        self._log(status, began_s, Notes(code=code, param=param))
        await self._tell(error_message(status, envelope, headers, stream_id))
        if isinstance(error, UnauthenticatedError):
            await self._close(POLICY_VIOLATION, error.code)

    def _log(self, status: int, began_s: float, found: Notes) -> None:
        if status < 400 and not self._settings.access_log:
            return
        found.route, found.owner = "/v1/responses", self._caller.owner
        log_request("WEBSOCKET", status, began_s, found)

    # ── the end ──

    def _check_standing(self) -> None:
        if not self._service.access.still_in(self._caller):
            raise UnauthenticatedError(given=True)

    async def _until_gone(self) -> Any:
        """As `receive` tells it of an HTTP client that has left."""
        await self._gone.wait()
        return {"type": "http.disconnect"}

    @property
    def _is_busy(self) -> bool:
        return any(stream.task for stream in self._streams.values())

    @property
    def _is_over(self) -> bool:
        return time.monotonic() - self._began_s >= self._settings.lifetime_s

    def _mark_active(self) -> None:
        self._active_s = time.monotonic()
        mark_idle(self._scope, not self._is_busy)

    async def _watch(self) -> None:
        """Close the connection when its key is revoked, its time is over, or nothing happens on it."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            if not self._service.access.still_in(self._caller):
                await self._close(POLICY_VIOLATION, UnauthenticatedError.code)
            elif self._is_busy:
                continue
            elif self._is_over:
                await self._refuse(ConnectionLimitError(self._settings.lifetime_s), None, time.monotonic())
                await self._close(GOING_AWAY, ConnectionLimitError.code)
            elif time.monotonic() - self._active_s >= self._settings.idle_s:
                await self._close(GOING_AWAY, "idle_timeout")

    async def _close(self, code: int, reason: str) -> None:
        if not self._gone.is_set():
            self._gone.set()
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

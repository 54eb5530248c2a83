"""One connection of WebSocket mode: what comes in, its streams, what waits in them, and when it closes."""

import asyncio
import time
from collections import deque
from functools import partial
from typing import Any, NamedTuple, cast

from litestar.types import Receive, Scope, Send

from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.socket_messages import Create, Steer, decode_message, error_message
from turnlog.adapters.uvicorn import mark_idle, was_cut_off
from turnlog.app.access import UnauthenticatedError
from turnlog.app.http.bodies import SMALL_BYTES
from turnlog.app.http.errors import message_refusal
from turnlog.app.http.request_log import Notes, log_request
from turnlog.app.http.service import Service
from turnlog.app.http.socket_turns import ConnectionTurns
from turnlog.domain.errors import InvalidRequestError, OverloadError, ResponsesError
from turnlog.domain.owners import Caller

MOST_RUNNING = 16
MOST_STREAMS = 32
MOST_WAITING = 64
MOST_WAITING_BYTES = 16 * 1024 * 1024
"""What one connection may have running and waiting. A message that is alone may be as long as a body."""

WATCH_S = 1.0
"""How often a connection looks whether it has to close."""

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
        self._gone = asyncio.Event()
        self._turns = ConnectionTurns(
            service,
            self._caller,
            self._gone,
            tell=self._tell,
            refuse=self._refuse,
            note=self._note,
            was_cut_off=partial(was_cut_off, scope),
        )
        self._streams: dict[str | None, Stream] = {}
        self._slots = asyncio.Semaphore(MOST_RUNNING)
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
            await self._turns.steering.close()

    # ── what comes in ──

    async def _take(self, message: Any) -> None:
        """Do what a message asks for, or refuse it; what is broken closes nothing."""
        self._mark_active()
        began_s = time.monotonic()
        try:
            self._turns.check_standing()
            asked = await self._decoded(message)
            if isinstance(asked, Steer):
                await self._turns.steering.take(asked)
            else:
                self._enqueue(asked)
        except ResponsesError as error:
            await self._refuse(error, None, began_s)

    async def _decoded(self, message: Any) -> Create | Steer:
        text = message.get("text")
        if text is None:
            raise InvalidRequestError(
                "Messages are JSON in text frames; this one was binary, or no UTF-8.", code="invalid_message"
            )
        body = text.encode()
        work = partial(decode_message, body, self._settings.limits)
        if len(body) <= SMALL_BYTES:
            return work()
        return await asyncio.wrap_future(self._service.in_turn(self._caller.owner, work))

    def _enqueue(self, create: Create) -> None:
        """Have a turn run behind those of its stream.

        Raises:
            ConnectionLimitError: the connection's time is over.
            TooManyMessagesError, InvalidRequestError: it has too much waiting, or too many streams.
        """
        if self._is_over:
            raise ConnectionLimitError(self._settings.lifetime_s)
        sizes = [each.size_bytes for stream in self._streams.values() for each in stream.waiting]
        if len(sizes) >= MOST_WAITING or (sizes and sum(sizes) + create.size_bytes > MOST_WAITING_BYTES):
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

    async def _run_stream(self, stream: Stream) -> None:
        try:
            while stream.waiting and not self._gone.is_set():
                async with self._slots:
                    # A task of its own, for the context of its log lines.
                    await asyncio.create_task(self._turns.run(stream.waiting.popleft()))
        finally:
            stream.task = None
            self._mark_active()

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

    def _note(self, began_s: float, found: Notes) -> None:
        if self._settings.access_log:
            self._log(200, began_s, found)

    def _log(self, status: int, began_s: float, found: Notes) -> None:
        found.route, found.owner = "/v1/responses", self._caller.owner
        log_request("WEBSOCKET", status, began_s, found)

    # ── the end ──

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
            await asyncio.sleep(WATCH_S)
            now_s = time.monotonic()
            if not self._service.access.still_in(self._caller):
                await self._refuse(UnauthenticatedError(given=True), None, now_s)
            elif self._is_busy:
                continue
            elif self._is_over:
                await self._refuse(ConnectionLimitError(self._settings.lifetime_s), None, now_s)
                await self._close(GOING_AWAY, ConnectionLimitError.code)
            elif now_s - self._active_s >= self._settings.idle_s:
                await self._close(GOING_AWAY, "idle_timeout")

    async def _close(self, code: int, reason: str) -> None:
        if not self._gone.is_set():
            self._gone.set()
            await self._send({"type": "websocket.close", "code": code, "reason": reason})

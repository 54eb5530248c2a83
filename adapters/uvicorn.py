"""A uvicorn protocol that bounds what a connection may cost, and lets one be cut off.

uvicorn has no limit for a slow request, for the size of a head, or for a reader that takes nothing once its
answer is written. ASGI has no word for cutting a connection off: an application that just returns leaves the
socket open until its buffer is taken.
"""

import logging
import sys
import uuid
from asyncio import BaseTransport, Protocol, TimerHandle
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from turnlog.adapters.crowd import Crowd
from turnlog.adapters.http11 import StandardProtocol
from turnlog.adapters.openai.errors import error_envelope
from turnlog.adapters.slow_reader import ReaderWatch

stranger_log = logging.getLogger("turnlog.strangers")
"""For lines that anybody can cause: `app.operations.logs` bounds them."""

EXTENSION = "turnlog.connection"

SURPLUS = 64
"""How many connections beyond the limit still get an answer that says so; any more are dropped."""

MOST_PIPELINED = 16
"""Requests of one connection that may wait for the one before them."""

STRANGERS_SHARE = 4
"""One connection in so many may be a stranger's: of somebody who has not shown a key."""

STRANGERS_TIMEOUT_S = 10.0
"""How long a stranger may take for a head, and for the next one."""


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """The most that one connection may cost, and how many there may be.

    Args:
        head_timeout_s: from the connection, or the first byte of a request, to the end of its headers.
        body_timeout_s: from there to the end of its body.
        drain_limit_s: how long a reader may leave a full buffer, or the end of an answer, untaken; read anew
            at each use (R-310, R-395).
    """

    connections: int = 1_000
    head_bytes: int = 64 * 1024
    head_timeout_s: float = 30.0
    body_timeout_s: float = 120.0
    drain_limit_s: Callable[[], float] = lambda: 30.0


class CuttableProtocol(ReaderWatch, StandardProtocol):
    """HTTP/1.1 as uvicorn speaks it, within limits; an ASGI extension drops the connection."""

    limits: ConnectionLimits
    crowd: Crowd
    _is_known = False
    _deadline: TimerHandle | None = None
    _waits_for = ""
    # Bytes since the last that meant something: of a head, of trailers, of a chunk's extension.
    _pending_bytes = 0
    _header_bytes = 0
    request_id = ""

    # ── the connection ──

    def connection_made(self, transport: BaseTransport) -> None:
        """Begin to wait for a request; one connection too many is told so, many too many are dropped.

        That there are too many is said only if none is idle: else the longest idle one makes room.
        """
        super().connection_made(transport)  # type: ignore[arg-type]
        self.drain_limit_s = self.limits.drain_limit_s
        self.crowd.enter(self, self.loop.time())
        if self.crowd.surplus > SURPLUS:
            self.transport.abort()
        elif self.crowd.surplus:
            self.app = _full
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        self.crowd.exit(self)
        self._stop_waiting()
        self.stop_watching()
        super().connection_lost(exc)

    def leave(self) -> None:
        """Close an idle connection, because another one needs its place."""
        protocol: Any = self.transport.get_protocol()
        protocol.shutdown()

    def admit(self) -> None:
        """Whoever sends the request that is served now has shown a key; the stranger's limits are off."""
        self.crowd.admit(self)
        self._is_known = True
        self.timeout_keep_alive = self.config.timeout_keep_alive
        if self._deadline and self._waits_for == "body":
            self._wait("body", self.limits.body_timeout_s)

    def _patience_s(self, limit_s: float) -> float:
        return limit_s if self._is_known else min(limit_s, STRANGERS_TIMEOUT_S)

    def _wait_for_head(self) -> None:
        self._wait("head", self._patience_s(self.limits.head_timeout_s))

    def _note_idleness(self) -> None:
        """Whether this connection can make room for another one."""
        is_done = self.cycle is None or self.cycle.response_complete
        self._mark_idle(is_done and not self.transport.get_write_buffer_size())

    def _mark_idle(self, is_idle: bool) -> None:  # noqa: FBT001  # the state itself
        if is_idle:
            self.crowd.idles(self, self.loop.time())
        else:
            self.crowd.works(self)

    # ── what comes in ──

    def data_received(self, data: bytes) -> None:
        """Parse, and refuse a head, trailers or chunk extensions that never end."""
        if not self._deadline and (self.cycle is None or self.cycle.response_complete):
            # Also bytes that begin no request: they have ended uvicorn's wait for the next one.
            self._wait_for_head()
        # By pieces, because the parser does not say how much of one it has made nothing of yet.
        for start in range(0, len(data), self.limits.head_bytes):
            piece = data[start : start + self.limits.head_bytes]
            self._pending_bytes += len(piece)
            super().data_received(piece)
            if self.transport.is_closing():
                return
            if (protocol := self.transport.get_protocol()) is not self:
                if rest := data[start + len(piece) :]:
                    cast(Protocol, protocol).data_received(rest)
                return
            self._note_idleness()
            if self._pending_bytes > self.limits.head_bytes:
                self.refusal = self._head_refusal()
                self.send_400_response("")
                return

    def on_message_begin(self) -> None:
        """A request begins: let its application reach the connection."""
        super().on_message_begin()
        self.request_id = _new_request_id()
        self.scope["extensions"] = {
            EXTENSION: {
                "abort": self.transport.abort,
                "admit": self.admit,
                "idle": self._mark_idle,
                "was_cut_off": lambda: self.was_cut_off,
                "request_id": self.request_id,
            }
        }
        self._header_bytes = 0
        self._wait_for_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, of the head or of the trailers."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self.limits.head_bytes:
            self.refuse(*self._head_refusal())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: begin to wait for the body."""
        if len(self.pipeline) >= MOST_PIPELINED:
            self.refuse(400, "too_many_requests_pipelined", "Too many pipelined requests on this connection.")
        self._pending_bytes = 0
        self._wait("body", self._patience_s(self.limits.body_timeout_s))
        super().on_headers_complete()

    def on_request(self) -> None:
        """Give the answer its id, whoever makes it."""
        self.cycle.default_headers = [*self.cycle.default_headers, id_header(self.request_id)]

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._pending_bytes = 0
        self._stop_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed or breaks a limit, in the API's envelope, and close."""
        self._stop_waiting()
        cycle = self.cycle
        answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if answering or self.pipeline:
            # Another answer is being sent: whatever is written now would be taken for a part of it.
            self.transport.abort()
            return
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        status, code, message = self.refusal
        request_id = self.request_id or _new_request_id()
        stranger_log.info(
            "[http] not a request", extra={"request_id": request_id, "status": status, "code": code}
        )
        body = msgspec.json.encode(error_envelope("invalid_request_error", message, code=code))
        headers = [
            *self.server_state.default_headers,
            id_header(request_id),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        head = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[status] + head + b"\r\n" + body)
        self.transport.close()
        self.watch_reader()

    # ── upgrades ──

    def _should_upgrade(self) -> bool:
        is_free = self.cycle is None or self.cycle.response_complete
        return self.app is not _full and is_free and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol, with what came behind the head.

        uvicorn calls this while it handles the parser's exception, which says where the head has ended.
        """
        exception = sys.exc_info()[1]
        assert exception, "called in an except block"
        self._stop_waiting()
        self.stop_watching()
        self.crowd.works(self)
        self.connections.discard(self)
        make: Any = self.ws_protocol_class
        socket = make(self, config=self.config, server_state=self.server_state, app_state=self.app_state)
        self.transport.set_protocol(socket)
        socket.connection_made(self.transport)
        if rest := self._received[exception.args[0] :]:
            socket.data_received(rest)

    # ── deadlines of the sender ──

    def _wait(self, part: str, limit_s: float) -> None:
        self._stop_waiting()
        self._waits_for = part
        self._deadline = self.loop.call_later(limit_s, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            # It is not the client that is slow: an earlier request of its connection is being answered.
            self._wait(self._waits_for, self.limits.body_timeout_s)
        elif self._waits_for == "head" and not self._pending_bytes:
            self.transport.close()
        else:
            message = f"The request's {self._waits_for} did not arrive in time."
            self.refusal = (408, "request_timeout", message)
            self.send_400_response("")

    def _head_refusal(self) -> tuple[int, str, str]:
        most = self.limits.head_bytes
        return 431, "headers_too_large", f"The request's headers exceed {most} bytes."

    # ── deadlines of the reader ──

    def resume_writing(self) -> None:
        """The reader has taken what there was, or nearly."""
        super().resume_writing()
        self._note_idleness()
        self._watch_end()

    def on_response_complete(self) -> None:
        """All is written, if not taken yet."""
        if not self._is_known:
            self.timeout_keep_alive = min(self.config.timeout_keep_alive, round(STRANGERS_TIMEOUT_S))
        super().on_response_complete()
        self._note_idleness()
        self._watch_end()

    def _watch_end(self) -> None:
        if self.cycle is not None and self.cycle.response_complete and not self.is_watched:
            self.watch_reader()

    def on_taken(self) -> None:
        """The reader has taken some of it, perhaps all."""
        self._note_idleness()


def within(limits: ConnectionLimits, crowd: Crowd) -> type[CuttableProtocol]:
    """The protocol with these limits for the connections of one server, for uvicorn's `http` setting."""
    members = {"limits": limits, "crowd": crowd}
    return cast("type[CuttableProtocol]", type("BoundedProtocol", (CuttableProtocol,), members))


async def _full(scope: Any, receive: Any, send: Any) -> None:
    """The application of a connection too many."""
    code, message = (
        "too_many_connections",
        "Connection limit reached. Retry later.",
    )
    stranger_log.info("[http] refused", extra={"request_id": request_id(scope), "status": 503, "code": code})
    body = msgspec.json.encode(error_envelope("server_error", message, code=code))
    head = {
        b"content-type": b"application/json",
        b"content-length": str(len(body)).encode(),
        b"connection": b"close",
        b"retry-after": b"1",
    }
    await send({"type": "http.response.start", "status": 503, "headers": list(head.items())})
    await send({"type": "http.response.body", "body": body})


def _new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def id_header(request_id: str) -> tuple[bytes, bytes]:
    return b"x-request-id", request_id.encode()


def request_id(scope: Any) -> str | None:
    """The id that a request's answer has in its `x-request-id`; under another server, none."""
    extension = (scope.get("extensions") or {}).get(EXTENSION)
    return extension and extension["request_id"]


def admit(scope: Any) -> None:
    """Note that the connection of a request is no stranger's any more; under another server, nothing."""
    if extension := (scope.get("extensions") or {}).get(EXTENSION):
        extension["admit"]()


def cut_off(scope: Any) -> None:
    """Drop the connection of a request; under another server, nothing."""
    if extension := (scope.get("extensions") or {}).get(EXTENSION):
        extension["abort"]()


def mark_idle(scope: Any, is_idle: bool) -> None:  # noqa: FBT001  # the state itself
    """Whether a WebSocket's connection can make room for another one; under another server, nothing."""
    if extension := (scope.get("extensions") or {}).get(EXTENSION):
        extension["idle"](is_idle)


def was_cut_off(scope: Any) -> bool:
    """Whether a request's connection was dropped because its client stopped reading; it has not hung up."""
    extension = (scope.get("extensions") or {}).get(EXTENSION)
    return extension is not None and extension["was_cut_off"]()

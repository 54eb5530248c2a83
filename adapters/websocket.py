"""A uvicorn WebSocket protocol within the bounds of the HTTP connection that it was."""

from asyncio import BaseTransport
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from turnlog.adapters.slow_reader import ReaderWatch
from turnlog.adapters.uvicorn import EXTENSION, CuttableProtocol, id_header

PING_INTERVAL_S = 20.0
PONG_TIMEOUT_S = 60.0
"""How long a client may leave a ping unanswered: its own event loop may be busy with a tool."""


class CuttableWebSocket(ReaderWatch, WebSocketsSansIOProtocol):
    """A WebSocket as uvicorn speaks it; a reader that stalls, or answers no ping, is dropped.

    Args:
        http: the protocol of the handshake, which keeps the connection's place in the crowd.
    """

    def __init__(self, http: CuttableProtocol, **settings: Any) -> None:
        super().__init__(**settings)
        self._http = http
        self.drain_limit_s = http.drain_limit_s
        self.default_headers = [*self.default_headers, id_header(http.request_id)]

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the crowd."""
        self.stop_watching()
        self._http.crowd.exit(self._http)
        super().connection_lost(exc)

    def connection_made(self, transport: BaseTransport) -> None:
        """Take the connection over, and the handshake, of which uvicorn is shown what it needs.

        The parser of `websockets` refuses heads that are within the bounds of HTTP here.
        """
        super().connection_made(transport)
        key = dict(self._http.headers)[b"sec-websocket-key"]
        head = b"GET %s HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" % self._http.url
        self.data_received(head + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % key)

    def handle_connect(self, event: Request) -> None:
        """Give the application the headers as they came, and hold of the connection."""
        super().handle_connect(event)
        self.scope["headers"] = self._http.headers
        self.scope["extensions"] |= self._http.scope["extensions"]
        self.scope["extensions"][EXTENSION]["was_cut_off"] = lambda: self.was_cut_off

    # ── what comes in ──

    def handle_cont(self, event: Frame) -> None:
        """Join the fragments as they come: as single bytes in a list they would take forty times as much."""
        joined: Any = self.frames
        if not isinstance(joined[0], bytearray):
            joined[0] = bytearray(joined[0])
        joined[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """Hand a message over; text that is not UTF-8 as bytes, for the application to refuse."""
        if self.curr_msg_data_type == "text":
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:
                self.curr_msg_data_type = "bytes"
        super().send_receive_event_to_app()

    # ── a reader that does not read ──

    def keepalive_timeout(self) -> None:
        """Whoever answers no ping takes no close frame either."""
        self.transport.abort()

    async def send(self, message: Any) -> None:
        """Send what the application says; a reader has to take the end of it, too."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True  # also of a refused one, which uvicorn would log as an error
            self.watch_reader()

"""HTTP/1.1 where uvicorn differs from RFC 9110 and RFC 9112.

Targets in absolute form, upgrades that are not served, answers to HTTP/1.0, unknown transfer codings.
"""

import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from httptools import HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LONGEST_TARGET_BYTES = 32 * 1024
LONGEST_WEBSOCKET_TARGET_BYTES = 4 * 1024
_WEBSOCKET_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")

_Send = Callable[[Any], Awaitable[None]]


class Refusal(Exception):  # noqa: N818 - never leaves the protocol
    """A request that must not be served, while it is parsed."""


class StandardProtocol(HttpToolsProtocol):
    """uvicorn's protocol. `refusal` is the status, the code and the sentence of what is refused next."""

    refusal = (400, "invalid_http", "Invalid HTTP request received.")
    _received = b""

    def refuse(self, status: int, code: str, message: str) -> None:
        """Refuse the request that is being parsed.

        Raises:
            Refusal: always; the parser passes it on as an error of its own.
        """
        self.refusal = (status, code, message)
        raise Refusal

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._received = data
        super().data_received(data)

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's target (RFC 9112, 3: 414 if it is too long)."""
        super().on_url(url)
        if len(self.url) > LONGEST_TARGET_BYTES:
            self.refuse(414, "uri_too_long", f"The target has more than {LONGEST_TARGET_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """Begin to serve the request."""
        if self._ignores_upgrade():
            return  # it comes again, as one that wants none
        self._check_transfer_coding()
        self._read_absolute_form()
        if self.parser.should_upgrade() and self._should_upgrade():
            return
        is_old = self.parser.get_http_version() == "1.0"
        if is_old:
            self.expect_100_continue = False  # RFC 9110, 10.1.1
        super().on_headers_complete()
        if is_old or self.expect_100_continue:
            self.cycle.send = _framed(self.cycle, self.cycle.send, chunked=not is_old)  # type: ignore[method-assign, assignment]
        self.on_request()

    def on_request(self) -> None:
        """A request begins to be served as `cycle`; nothing of its answer was sent yet."""

    def on_message_complete(self) -> None:
        """The request is there."""
        if not self._ignores_upgrade():
            super().on_message_complete()

    def _read_absolute_form(self) -> None:
        """Turn `http://host/path` into a path and its host, whatever `Host` says (RFC 9112, 3.2.2)."""
        scheme, colon, rest = self.url.partition(b"://")
        if not colon or scheme.lower() not in (b"http", b"https"):
            return
        end = min((at for mark in b"/?" if (at := rest.find(mark)) >= 0), default=len(rest))
        host, target = rest[:end], rest[end:]
        self.url = target if target.startswith(b"/") else b"/" + target
        if [name for name, _ in self.headers].count(b"host") == 1:  # else it is refused for that
            self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]

    def _check_transfer_coding(self) -> None:
        """Refuse a body that was coded in another way than by chunks (RFC 9112, 6.1)."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
            self.refuse(501, "transfer_coding_not_supported", "The only Transfer-Encoding is chunked.")

    # ── upgrades (RFC 9110, 7.8): a server may pass over them, but must read the request's body ──

    def _ignores_upgrade(self) -> bool:
        is_asked = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        return is_asked and not self._should_upgrade()

    def _should_upgrade(self) -> bool:
        """Whether the request is the handshake of a WebSocket, which has no body (RFC 6455, 4.2.1)."""
        values = dict(self.headers)
        return (
            super()._should_upgrade()
            and (self.parser.get_method(), self.parser.get_http_version()) == (b"GET", "1.1")
            and len(self.url) <= LONGEST_WEBSOCKET_TARGET_BYTES
            and self.url.isascii()
            and not values.keys() & {b"content-length", b"transfer-encoding"}
            and values.get(b"sec-websocket-version") == b"13"
            and _WEBSOCKET_KEY.fullmatch(values.get(b"sec-websocket-key", b"")) is not None
        )

    def _unsupported_upgrade_warning(self) -> None:
        """Parse the request once more, as one that wants no upgrade: the parser has taken its body for none.

        uvicorn calls this while it handles the parser's exception, which says where the head has ended.
        """
        if not self._ignores_upgrade():
            return  # CONNECT, which no route has
        exception = sys.exc_info()[1]
        assert exception, "called in an except block"
        rest = self._received[exception.args[0] :]
        head = [
            b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        ]
        for name, value in self.headers:
            options = value.split(b",") if name == b"connection" else [value]
            kept = [each for each in options if name != b"connection" or each.strip().lower() != b"upgrade"]
            head.append(b"%s: %s" % (name, b",".join(kept)))
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"\r\n".join([*head, b"", b""]) + rest)


def _framed(cycle: RequestResponseCycle, send: _Send, *, chunked: bool) -> _Send:
    """`send` for a request that wants its answer framed in another way.

    HTTP/1.0 has no chunks: its answer ends with the connection (RFC 9112, 6.1). And a client that waits for
    `100 Continue` may leave its body out after a final status, so nothing is read behind that.
    """

    async def framing(message: Any) -> None:
        if message["type"] == "http.response.start":
            if cycle.waiting_for_100_continue:
                cycle.keep_alive = False
            names = {name.lower() for name, _ in message.get("headers", [])}
            if not chunked and b"content-length" not in names:
                cycle.chunked_encoding = False
        elif not chunked and cycle.chunked_encoding is False and not cycle.expected_content_length:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return framing

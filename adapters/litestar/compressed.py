"""Compressed request bodies, decoded piece by piece so that the bound of a body holds for what comes out.

Whoever reads the body stops at the bound; what lies behind it in a bomb is never decompressed.
"""

import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

import zstandard
from litestar.datastructures import Headers
from litestar.exceptions import InternalServerException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send

from turnlog.domain.errors import InvalidRequestError

_PIECE_BYTES = 64 * 1024

_ZSTD_SLICE_BYTES = 64
"""What goes into a Zstandard decoder at once. It gives all that this becomes: four bytes can become a block
of 128 KiB, so a slice can become 2 MiB."""

_LEAST_WINDOW_BYTES = 8 * 1024 * 1024
"""What RFC 9659 lets a Zstandard body ask for."""


class UnsupportedEncodingError(InvalidRequestError):
    """The body is compressed in a way that is not read here."""

    code = "unsupported_content_encoding"

    def __init__(self, encoding: str) -> None:
        super().__init__(f"Unsupported Content-Encoding '{encoding[:64]}'. Supported: {', '.join(_DECODERS)}")


class _Decoder(Protocol):
    """Decodes one body."""

    def pieces(self, compressed: bytes) -> Iterator[bytes]:
        """What the next bytes become, in pieces."""

    def is_whole(self) -> bool:
        """Whether the body ended where the bytes did."""


class _Zlib:
    def __init__(self, window_bits: int) -> None:
        self._made = zlib.decompressobj(window_bits)

    def pieces(self, compressed: bytes) -> Iterator[bytes]:
        piece = b""
        while compressed or len(piece) == _PIECE_BYTES:
            piece = self._made.decompress(compressed, _PIECE_BYTES)
            compressed = self._made.unconsumed_tail
            yield piece
            if self._made.unused_data:
                raise zlib.error("there is something after the end")
            if self._made.eof:
                return

    def is_whole(self) -> bool:
        return self._made.eof


class _Zstd:
    def __init__(self, most_bytes: int) -> None:
        window_bytes = max(_LEAST_WINDOW_BYTES, most_bytes)
        self._made = zstandard.ZstdDecompressor(max_window_size=window_bytes).decompressobj()

    def pieces(self, compressed: bytes) -> Iterator[bytes]:
        for start in range(0, len(compressed), _ZSTD_SLICE_BYTES):
            yield self._made.decompress(compressed[start : start + _ZSTD_SLICE_BYTES])
        if self._made.unused_data:
            raise zstandard.ZstdError("there is something after the end")

    def is_whole(self) -> bool:
        return self._made.eof


_DECODERS: dict[str, Callable[[int], _Decoder]] = {
    "gzip": lambda _: _Zlib(zlib.MAX_WBITS | 16),
    "deflate": lambda _: _Zlib(zlib.MAX_WBITS),
    "zstd": _Zstd,
}


READ_ENCODINGS = tuple(_DECODERS)


def decompressing(most_bytes: int) -> Callable[[ASGIApp], ASGIApp]:
    """A middleware that lets applications read compressed bodies as they were before.

    Reading one raises `InvalidRequestError` if it is broken, and 413 if it is longer than `most_bytes` while
    still compressed; how long it may become is for the reader to bound.
    """

    def wrap(app: ASGIApp) -> ASGIApp:
        async def decompressed(scope: Scope, receive: Receive, send: Send) -> None:
            encoding = Headers.from_scope(scope).get("content-encoding", "").strip().lower()
            if encoding not in ("", "identity"):
                receive = _Body(receive, encoding, most_bytes).receive
            await app(scope, receive, send)

        return decompressed

    return wrap


class _Body:
    """A body as an application receives it."""

    def __init__(self, receive: Receive, encoding: str, most_bytes: int) -> None:
        self._receive = receive
        self._encoding = encoding
        self._most_bytes = most_bytes
        self._pieces = self._decoded()
        self._ended = False

    async def receive(self) -> HTTPReceiveMessage:
        """The next piece; after the last, whatever the server has to say."""
        if self._ended:
            return await self._receive()  # type: ignore[return-value]
        try:
            piece = await anext(self._pieces, b"")
        except (zlib.error, zstandard.ZstdError) as error:
            raise InvalidRequestError(
                f"The body is not valid {self._encoding}: {error}", code="invalid_content_encoding"
            ) from None
        self._ended = not piece
        return {"type": "http.request", "body": piece, "more_body": not self._ended}

    async def _decoded(self) -> AsyncIterator[bytes]:
        make = _DECODERS.get(self._encoding)
        if make is None:
            raise UnsupportedEncodingError(self._encoding)
        decoder, left = make(self._most_bytes), self._most_bytes
        more = True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise InternalServerException("client disconnected prematurely")
            left -= len(message["body"])
            if left < 0:
                raise RequestEntityTooLarge
            for piece in decoder.pieces(message["body"]):
                if piece:
                    yield piece
            more = message["more_body"]
        if not decoder.is_whole():
            raise zlib.error("it ends too soon")

"""Messages over a socket: msgpack, each behind its length in four bytes."""

import socket
from threading import Lock
from typing import Generic, TypeVar

import msgspec

Received = TypeVar("Received")

_LENGTH_BYTES = 4
_READ_BYTES = 1 << 18

encoded = msgspec.msgpack.Encoder().encode
"""A message's bytes."""


class Channel(Generic[Received]):
    """One end of a connection. Any thread may send; one thread receives.

    Args:
        connection: a stream socket. Its timeout, if it has one, bounds each wait.
        receives: the type, or union of tagged structs, of what the other end sends.
    """

    def __init__(self, connection: socket.socket, receives: type[Received]) -> None:
        self._socket = connection
        self._decoder = msgspec.msgpack.Decoder(receives)
        self._sending = Lock()
        self._buffer = bytearray()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; blocks while the other end does not read.

        Raises:
            OSError: the other end is gone.
            TimeoutError: it did not read in time; the channel is of no use afterwards.
        """
        self.send_encoded(encoded(message))

    def send_encoded(self, body: bytes) -> None:
        """Send a message that was `encoded` before; raises what `send` raises."""
        with self._sending:
            self._socket.sendall(len(body).to_bytes(_LENGTH_BYTES, "little") + body)

    def receive(self) -> Received:
        """The next message.

        Raises:
            EOFError: the other end is gone.
            TimeoutError: nothing came in time; what has come of a message is kept.
        """
        while (message := self._next()) is None:
            try:
                piece = self._socket.recv(_READ_BYTES)
            except BlockingIOError:  # SO_RCVTIMEO
                raise TimeoutError from None
            except TimeoutError:
                raise
            except OSError as error:
                raise EOFError from error
            if not piece:
                raise EOFError
            self._buffer += piece
        return self._decoder.decode(message)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def _next(self) -> bytes | None:
        """The first whole message of what has come."""
        if len(self._buffer) < _LENGTH_BYTES:
            return None
        end = _LENGTH_BYTES + int.from_bytes(self._buffer[:_LENGTH_BYTES], "little")
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_LENGTH_BYTES:end])
        del self._buffer[:end]
        return message

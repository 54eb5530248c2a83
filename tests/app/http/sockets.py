"""WebSocket mode for tests: a bare client of it, as any language could have one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.serving import RunningServer
from tests.waiting import SOON_S

Json = dict[str, Any]

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Socket:
    """A connection; a message that does not come soon fails the test."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, kind: str = "response.create", **fields: Any) -> None:
        """Send a message; a turn of the scripted model unless it says otherwise."""
        defaults = {"model": "scripted", "store": False} if kind == "response.create" else {}
        self.connection.send(json.dumps({"type": kind} | defaults | fields))

    def receive(self) -> Json:
        """The next message."""
        told: Json = json.loads(self.connection.recv(SOON_S))
        return told

    def until(self, *kinds: str) -> list[Json]:
        """The messages up to the first of these types."""
        told = [self.receive()]
        while told[-1]["type"] not in kinds:
            told.append(self.receive())
        return told

    def turn(self, **fields: Any) -> list[Json]:
        """Ask for a turn; its messages, or the error it is refused with."""
        self.send(**fields)
        return self.until(*ENDS)

    def close_code(self) -> int:
        """Read until the server closes, and with which code it does."""
        with suppress(ConnectionClosedError):
            for _ in self.connection:
                pass
        code = self.connection.protocol.close_code
        assert code
        return code


@contextmanager
def opened(server: RunningServer, *, key: str | None = None, **options: Any) -> Iterator[Socket]:
    """A WebSocket of the server."""
    address = server.address.replace("http", "ws", 1) + "/v1/responses"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # The environment of a test may name a proxy.
    with connect(address, additional_headers=headers, proxy=None, **options) as connection:
        yield Socket(connection)

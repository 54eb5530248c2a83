"""A small and fast HTTP client for fuzzing: sends bytes as they are, reads whole answers, checks streams."""

import asyncio
import json
from typing import NamedTuple, Self

TERMINALS = ("response.completed", "response.incomplete", "response.failed")
HUNG_S = 60.0
"""Longer than any answer takes; who waits longer waits for ever."""


class Answer(NamedTuple):
    """An answer; `headers` are as they came, in lower case."""

    status: int
    headers: str
    body: bytes

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of frames."""
        return "content-type: text/event-stream" in self.headers


class Connection:
    """A connection that is kept as long as the server keeps it."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @classmethod
    def to(cls, address: str) -> Self:
        """A connection to an `http://host:port`."""
        host, _, port = address.removeprefix("http://").partition(":")
        return cls(host, int(port))

    async def ask(self, request: bytes) -> Answer:
        """Send a whole request and read the answer.

        Raises:
            TimeoutError: the server hangs.
            OSError, asyncio.IncompleteReadError: it closed the connection without an answer.
        """
        async with asyncio.timeout(HUNG_S):
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(*self._address, limit=1 << 24)
            assert self._reader
            self._writer.write(request)
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            body = await self._body(self._reader, head)
            if "connection: close" in head:
                self.hang_up()
            return Answer(int(head.split()[1]), head, body)

    async def leave_after(self, request: bytes) -> None:
        """Send a request, or a part of one, and hang up without reading."""
        _, writer = await asyncio.open_connection(*self._address)
        writer.write(request)
        writer.close()

    def hang_up(self) -> None:
        """Close the connection; the next request opens another."""
        if self._writer:
            self._writer.close()
        self._writer = None

    async def _body(self, reader: asyncio.StreamReader, head: str) -> bytes:
        if "transfer-encoding: chunked" not in head:
            _, _, length = head.partition("content-length: ")
            return await reader.readexactly(int(length.partition("\r\n")[0] or 0))
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body


def request(body: bytes, *lines: str, route: str = "POST /v1/responses") -> bytes:
    """A request as bytes; without a body it has no length."""
    length = [f"Content-Length: {len(body)}"] if body else []
    head = [f"{route} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *length, *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


def check(answer: Answer) -> None:
    """Assert that the answer can be read: JSON, or a stream with one terminal at its end.

    Raises:
        AssertionError: it cannot.
    """
    if not answer.is_stream:
        told = json.loads(answer.body)
        assert answer.status < 400 or told["error"]["code"], told
        return
    *frames, done, rest = answer.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", ""), answer.body[-200:]
    events = [json.loads(frame.partition("data: ")[2]) for frame in frames]
    first = events[0]["sequence_number"]
    assert [event["sequence_number"] for event in events] == list(range(first, first + len(events)))
    assert [event["type"] for event in events if event["type"] in TERMINALS] == [events[-1]["type"]]

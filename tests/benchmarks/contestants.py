"""Who is compared: each a process of its own, asked over a socket or a pipe."""

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from tests.serving import serving
from turnlog.adapters.mlx.runtime import OPENBLAS

Json = dict[str, Any]
Conversation = list[Json]


@dataclass(frozen=True)
class Measured:
    """Output tokens of all streams, the time to the last byte, and until each stream had its first text."""

    tokens: float
    seconds: float
    first_s: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class Asked(Protocol):
    """A contestant that runs; one that `converses` is a server."""

    converses: bool

    async def ask(self, questions: list[Conversation], tokens: int) -> Measured:
        """All questions at once, each answered in so many tokens."""

    async def converse(self, first: Conversation, second: str, tokens: int) -> tuple[float, float]:
        """Seconds to the first text of a turn, and of the next turn of that conversation."""


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

Contestant = Callable[[Path, Path], AbstractAsyncContextManager[Asked]]


class _Alone:
    converses = False

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, questions: list[Conversation], tokens: int) -> Measured:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"questions": questions, "tokens": tokens}).encode() + b"\n")
        return Measured(**json.loads(await self._process.stdout.readline()))

    async def converse(self, first: Conversation, second: str, tokens: int) -> tuple[float, float]:
        raise NotImplementedError


def alone(kind: str) -> Contestant:
    """`bare` or `engine`, see `tests.benchmarks.alone`."""

    @asynccontextmanager
    async def start(model: Path, _folder: Path) -> AsyncIterator[Asked]:
        command = (sys.executable, "-m", "tests.benchmarks.alone", kind, str(model))
        async with _process(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        ) as process:
            yield _Alone(process)

    return start


@dataclass
class _Answer:
    text: str
    tokens: int
    first_s: float
    response_id: str | None


class _Server:
    """Answers streams at `path`. Connections are made `apart_s` from each other, before the clock runs."""

    converses = True

    def __init__(self, port: int, path: str, model: str, apart_s: float = 0.0) -> None:
        self._port = port
        self._path = path
        self._model = model
        self._apart_s = apart_s

    async def ask(self, questions: list[Conversation], tokens: int) -> Measured:
        connections = []
        for _ in questions:
            connections.append(await self._connect())
            await asyncio.sleep(self._apart_s)
        began = perf_counter()
        bodies = (self._body(question, tokens) for question in questions)
        asked = zip(bodies, connections, strict=True)
        answers = await asyncio.gather(*(self._turn(body, began, connection) for body, connection in asked))
        ended = perf_counter()
        return Measured(
            sum(answer.tokens for answer in answers), ended - began, max(answer.first_s for answer in answers)
        )

    async def converse(self, first: Conversation, second: str, tokens: int) -> tuple[float, float]:
        connection = await self._connect()
        cold = await self._turn(self._body(first, tokens), perf_counter(), connection)
        body = self._next_body(first, cold, {"role": "user", "content": second}, tokens)
        # Made only now: a server ends a connection on which nothing is asked for long.
        connection = await self._connect()
        return cold.first_s, (await self._turn(body, perf_counter(), connection)).first_s

    def _next_body(self, asked: Conversation, answer: _Answer, then: Json, tokens: int) -> Json:
        return self._body([*asked, {"role": "assistant", "content": answer.text}, then], tokens)

    def _body(self, messages: list[Json], tokens: int) -> Json:
        return {
            "model": self._model,
            "messages": messages,
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def _connect(self) -> _Connection:
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def _turn(self, body: Json, began: float, connection: _Connection) -> _Answer:
        reader, writer = connection
        payload = json.dumps(body).encode()
        head = f"POST {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(payload)}\r\n\r\n".encode() + payload)
        seen, first_s = bytearray(), 0.0
        while chunk := await reader.read(1 << 16):
            seen += chunk
            if not first_s and _SAYS.search(seen):
                first_s = perf_counter() - began
        writer.close()
        return _read(bytes(seen), first_s)


class _ResponsesServer(_Server):
    def _body(self, messages: list[Json], tokens: int) -> Json:
        return {
            "model": self._model,
            "input": messages,
            "max_output_tokens": tokens,
            "temperature": 0,
            "stream": True,
        }

    def _next_body(self, asked: Conversation, answer: _Answer, then: Json, tokens: int) -> Json:
        assert answer.response_id
        return self._body([then], tokens) | {"previous_response_id": answer.response_id}


_SAYS = re.compile(rb'output_text\.delta|"(?:content|reasoning)": ?"[^"]')


def _read(seen: bytes, first_s: float) -> _Answer:
    """What a stream of either kind said."""
    text, tokens, response_id = "", 0, None
    for line in re.findall(rb"^data: (\{.*\})\r?$", seen, re.MULTILINE):
        event = json.loads(line)
        for choice in event.get("choices", ()):
            text += choice.get("delta", {}).get("content") or ""
        response = event.get("response") or {}
        response_id = response.get("id", response_id)
        usage = event.get("usage") or response.get("usage") or {}
        tokens = usage.get("output_tokens") or usage.get("completion_tokens") or tokens
    assert tokens, seen[:500] + seen[-500:]
    return _Answer(text, tokens, first_s, response_id)


@asynccontextmanager
async def turnlog(model: Path, folder: Path) -> AsyncIterator[Asked]:
    """`turnlog serve`, its log in a file."""
    with serving(folder / "turnlog.db", "--model", f"model={model}") as server:
        yield _ResponsesServer(int(server.address.rpartition(":")[2]), "/v1/responses", "model")


@asynccontextmanager
async def mlx_lm_server(model: Path, _folder: Path) -> AsyncIterator[Asked]:
    """As it comes. Its listen queue holds five connections."""
    async with _listening("mlx_lm", "server", "--model", str(model)) as port:
        yield _Server(port, "/v1/chat/completions", "default_model", apart_s=0.03)


@asynccontextmanager
async def mlx_vlm_server(model: Path, _folder: Path) -> AsyncIterator[Asked]:
    """The one other MLX server with a Responses API."""
    async with _listening("mlx_vlm.server", "--model", str(model)) as port:
        yield _ResponsesServer(port, "/v1/responses", str(model))


@asynccontextmanager
async def _listening(*arguments: str) -> AsyncIterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    # The same OpenBLAS that turnlog finds by itself.
    environ = os.environ | ({"LD_PRELOAD": "libopenblas.so.0"} if OPENBLAS else {})
    command = (sys.executable, "-m", *arguments, "--port", str(port))
    nowhere = asyncio.subprocess.DEVNULL
    async with _process(*command, env=environ, stdout=nowhere, stderr=nowhere):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                break
        yield port


@asynccontextmanager
async def _process(*command: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(*command, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()

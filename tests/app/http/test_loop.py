"""What is long does not hold up the event loop: bodies are decoded in threads, streams cut up (T2-05)."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import closing
from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnlog.adapters.litestar import stream
from turnlog.adapters.litestar.stream import FrameStream
from turnlog.adapters.owner_queue import OwnerQueue
from turnlog.app.http import responses
from turnlog.app.http.bodies import read_turn
from turnlog.app.http.responses import stream_bytes
from turnlog.app.turns.live import FrameLog
from turnlog.domain.owners import Caller, Role


@pytest.mark.parametrize(("size_bytes", "on_the_loop"), [(64 * 1024, True), (64 * 1024 + 1, False)])
async def test_a_long_body_is_decoded_in_a_thread(size_bytes: int, on_the_loop: bool) -> None:
    """T2-05: a megabyte of JSON takes ten milliseconds."""
    threads = []

    def decode(body: bytes, *_: object) -> int:
        threads.append(current_thread())
        return len(body)

    async def body() -> bytes:
        return b" " * size_bytes

    app = SimpleNamespace(state=SimpleNamespace(limits=None))
    request: Any = SimpleNamespace(content_type=("application/json", {}), body=body, headers={}, app=app)
    with closing(OwnerQueue("plan", 1)) as queue:
        service: Any = SimpleNamespace(in_turn=queue.submit)
        decoded: Any = await read_turn(
            cast(Any, decode), request, service, Caller("ada", frozenset({Role.CLIENT}))
        )

    assert decoded == (size_bytes, size_bytes)
    assert [thread is main_thread() for thread in threads] == [on_the_loop]


async def sent(chunks: AsyncGenerator[bytes, None]) -> list[bytes]:
    """The bodies of the messages by which a stream is sent."""
    bodies: list[bytes] = []
    never = asyncio.Event()

    async def send(message: MutableMapping[str, Any]) -> None:
        bodies.append(message.get("body", b""))

    async def receive() -> MutableMapping[str, Any]:
        await never.wait()
        return {"type": "http.disconnect"}

    answer: Any = FrameStream(chunks, drain_limit_s=1.0).to_asgi_response()
    await answer({"type": "http", "extensions": {}}, receive, send)
    return bodies


async def test_small_frames_are_sent_together_and_big_ones_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """T2-05: others have the loop between any two of them."""
    monkeypatch.setattr(responses, "_SMALL_FRAME_BYTES", 4)
    monkeypatch.setattr(stream, "_SEND_BYTES", 8)
    log = FrameLog()
    log.extend([b"a", b"bc", b"0123456789abcdefghij", b"d", b"e"], closed=True)

    bodies = await sent(stream_bytes(log, heartbeat_s=60, obfuscated=False))

    assert bodies == [b"", b"abc", b"01234567", b"89abcdef", b"ghij", b"de", b""]

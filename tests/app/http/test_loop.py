"""What is long does not hold up the event loop: bodies are decoded in threads (T2-05)."""

from contextlib import closing
from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnlog.adapters.owner_queue import OwnerQueue
from turnlog.app.http.bodies import read_turn
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

"""What is long does not hold up the event loop: bodies are decoded in threads, streams cut up (T2-05)."""

from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import pytest

from turnlog.app.http import responses
from turnlog.domain.errors import InvalidRequestError


@pytest.mark.parametrize(("size_bytes", "on_the_loop"), [(64 * 1024, True), (64 * 1024 + 1, False)])
async def test_a_long_body_is_decoded_in_a_thread(
    size_bytes: int, on_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2-05: a megabyte of JSON takes ten milliseconds."""
    decoded_in = []

    def refusing(*_: object) -> None:
        decoded_in.append(current_thread())
        raise InvalidRequestError("no")

    async def body() -> bytes:
        return b" " * size_bytes

    monkeypatch.setattr(responses, "decode_request", refusing)
    app = SimpleNamespace(state=SimpleNamespace(limits=None))
    request: Any = SimpleNamespace(content_type=("application/json", {}), body=body, headers={}, app=app)

    with pytest.raises(InvalidRequestError):
        await responses.create_response.fn(request, None, None)

    assert [thread is main_thread() for thread in decoded_in] == [on_the_loop]

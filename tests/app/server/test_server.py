"""The server's socket."""

import asyncio
import socket

import pytest

from turnlog.app.server.server import open_socket, url
from turnlog.app.settings import SettingsError


async def test_small_frames_are_sent_at_once() -> None:
    """Nagle's algorithm would hold each frame back until the one before it is acknowledged."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with open_socket("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(look, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await found
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_an_address_is_told_as_clients_write_it(host: str, address: str) -> None:
    with open_socket(host, 0) as listener:
        assert url(listener).startswith(address)


def test_an_address_that_is_not_this_machines_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"Cannot listen on 192\.0\.2\.1:0"):
        open_socket("192.0.2.1", 0)

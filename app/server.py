"""Runs a service on uvicorn, from the open socket to the last written event."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import uvicorn

from adapters.uvicorn import CuttableProtocol
from app.bootstrap import assemble
from app.http.application import make_application
from app.settings import Settings, SettingsError
from app.turns import Turns
from domain.ports import InferenceEngine

BACKLOG = 2048
"""Connections that may wait to be accepted; the system has a bound of its own."""

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that they close first and never meet a closing one."""


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        SettingsError: the address cannot be listened on, most often because it is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP by name: asyncio sends small frames at once (TCP_NODELAY) only on sockets that say what they are.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise SettingsError(
            f"cannot listen on {host}:{port}: {reason}; choose another address by --host and --port"
        ) from None
    return listener


def url(listener: socket.socket) -> str:
    """The address of a listening socket as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    settings: Settings,
    engines: dict[str, InferenceEngine],
    listener: socket.socket,
    ready: Callable[[], None],
) -> None:
    """Serve until the process is told to stop; running turns get their last frame first.

    Args:
        ready: called once requests are answered.

    Raises:
        StorageError: the store cannot be opened.
    """
    with ExitStack() as resources:
        service = assemble(settings, engines, resources)
        await service.recover()
        sweeping = asyncio.create_task(service.sweep())
        resources.callback(sweeping.cancel)
        config = uvicorn.Config(
            make_application(service, max_body_bytes=settings.max_body_bytes),
            http=CuttableProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_s)),
        )

        def listening() -> None:
            service.announce(url(listener))
            ready()

        server = TurnlogServer(config, service.turns, listening, grace_s=settings.shutdown_grace_s)
        await server.serve(sockets=[listener])


class TurnlogServer(uvicorn.Server):
    """A uvicorn server that ends the running turns before their connections, and exits with code 0."""

    def __init__(
        self, config: uvicorn.Config, turns: Turns, ready: Callable[[], None], *, grace_s: float
    ) -> None:
        super().__init__(config)
        self._turns = turns
        self._ready = ready
        self._grace_s = grace_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let every stream have its terminal frame, then close the connections (R-393)."""
        await self._turns.shut_down(self._grace_s)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM. uvicorn's own way ends the process by that very signal."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

"""Runs a service on uvicorn, from the open socket to the last written event."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import FrameType

import uvicorn

from turnlog.adapters.crowd import Crowd
from turnlog.adapters.keys import KeyFile
from turnlog.adapters.system import allow_open_files
from turnlog.adapters.uvicorn import STRANGERS_SHARE, SURPLUS, ConnectionLimits, within
from turnlog.adapters.websocket import PING_INTERVAL_S, PONG_TIMEOUT_S, CuttableWebSocket
from turnlog.app.http.application import make_application
from turnlog.app.http.origins import is_loopback
from turnlog.app.http.service import Service
from turnlog.app.operations.logs import STRANGER_LINES, log_loop_failure
from turnlog.app.operations.loop_lag import watch_loop
from turnlog.app.server.bootstrap import assemble
from turnlog.app.settings import Settings, SettingsError, drain_limit_s
from turnlog.domain.ports import ModelSource

log = logging.getLogger("turnlog")

BACKLOG = 2048
"""Connections that may wait to be accepted; the system has a bound of its own."""

OTHER_FILES = 256
"""Files that a server has open beside its connections: models while they are read, and the store."""

THREADS = 128
"""For loading models, and for what takes a moment; turns are planned on threads of their own."""

SWITCH_S = 0.001
"""How long a thread that decodes or renders may keep the interpreter from the event loop."""

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
            f"Cannot listen on {host}:{port}: {reason}. Choose another address with --host and --port."
        ) from None
    return listener


def check_exposure(listener: socket.socket, keys: KeyFile | None) -> bool:
    """Refuse to listen where others can reach the server while nobody needs a key (D-18).

    Args:
        keys: None for a log that has none.

    Returns:
        Whether keys are in use.

    Raises:
        SettingsError: there is no key; the sentence says how to make one.
        StorageError: the keys cannot be read.
    """
    host = listener.getsockname()[0]
    kept = keys.read() if keys else None
    if not kept and not is_loopback(host):
        raise SettingsError(
            f"Refusing to listen on {host} without API keys. Create a key with 'turnlog keys add NAME', or "
            "listen on 127.0.0.1."
        )
    if kept == ():
        log.warning("No keys left: rejecting every request until you add one with 'turnlog keys add NAME'.")
    return kept is not None


def url(listener: socket.socket) -> str:
    """The address of a listening socket as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    settings: Settings,
    sources: Mapping[str, ModelSource],
    listener: socket.socket,
    ready: Callable[[], None],
) -> None:
    """Serve until the process gets a stop signal; running turns get their last frame first.

    Args:
        ready: called once requests are answered.

    Raises:
        StorageError: the store cannot be opened.
    """
    sys.setswitchinterval(SWITCH_S)
    asyncio.get_running_loop().set_exception_handler(log_loop_failure)
    with ExitStack() as resources:
        service = assemble(settings, sources, resources)
        await service.recover()
        asyncio.get_running_loop().set_default_executor(
            ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="turnlog")
        )
        for beside in (
            service.sweep(),
            service.tidy(),
            service.models.watch_memory(),
            watch_loop(service.metrics.loop_lagged),
        ):
            resources.callback(asyncio.create_task(beside).cancel)
        _allow_connections(settings)
        # What strangers send that is no HTTP has lines of ours.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        crowd = Crowd(settings.max_connections, max(1, settings.max_connections // STRANGERS_SHARE))
        service.metrics.show(crowd.open, crowd.strangers, STRANGER_LINES)
        config = uvicorn.Config(
            make_application(service, settings),
            http=within(connection_limits(settings), crowd),
            ws=CuttableWebSocket,
            ws_max_size=settings.max_body_bytes,
            ws_ping_interval=PING_INTERVAL_S,
            ws_ping_timeout=PONG_TIMEOUT_S,
            # It would cost every frame of a stream the loop's time, and every connection memory.
            ws_per_message_deflate=False,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            # A request that follows another on its connection must not log under the other's response id.
            reset_contextvars=True,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_s)),
        )

        def listening() -> None:
            service.announce(url(listener))
            ready()

        server = TurnlogServer(config, service, listening, grace_s=settings.shutdown_grace_s)
        await server.serve(sockets=[listener])


def _allow_connections(settings: Settings) -> None:
    """Have the system let this process open as many connections as the settings do."""
    wanted = settings.max_connections + SURPLUS + OTHER_FILES
    if (allowed := allow_open_files(wanted)) < wanted:
        log.warning(
            "Open file limit is %d, but %d connections need %d (ulimit -n)",
            allowed,
            settings.max_connections,
            wanted,
        )


def connection_limits(settings: Settings) -> ConnectionLimits:
    """What a connection may cost."""
    return ConnectionLimits(
        connections=settings.max_connections,
        head_bytes=settings.max_head_bytes,
        head_timeout_s=settings.head_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        drain_limit_s=drain_limit_s,
    )


class TurnlogServer(uvicorn.Server):
    """A uvicorn server that ends the running turns before their connections, and exits with code 0.

    The first signal lets them end by themselves for `grace_s`, the second ends them at once, the third does
    not wait for their readers either.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, ready: Callable[[], None], *, grace_s: float
    ) -> None:
        super().__init__(config)
        self._turns = service.turns
        self._interrupt = service.interrupt
        self._ready = ready
        self._grace_s = grace_s
        self._hurried = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let every stream have its terminal frame, then close the connections (R-393).

        Meanwhile requests are still answered: new turns by 503, and readiness says why.
        """
        await self._drain()
        self._interrupt()
        await self._turns.shut_down(self._grace_s)
        await super().shutdown(sockets)

    async def _drain(self) -> None:
        if running := self._turns.running:
            log.warning("stopping: %d turns are finishing, press Ctrl-C again to stop now", running)
        first = {asyncio.ensure_future(self._turns.drain()), asyncio.ensure_future(self._hurried.wait())}
        await asyncio.wait(first, timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)
        for each in first:
            each.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to stop."""
        if not self.should_exit:
            self.should_exit = True
        elif not self._hurried.is_set():
            self._hurried.set()
        else:
            self.force_exit = True

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

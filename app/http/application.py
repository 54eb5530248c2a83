"""The application: security middleware, the routes behind it, and one envelope for every error."""

import logging
from functools import partial

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Scope

from turnlog.adapters.litestar.compressed import decompressing
from turnlog.adapters.litestar.stream import ending_with_client
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.app.http.errors import crash, refusal_code, refuse, refuse_by_framework
from turnlog.app.http.flow import Flow
from turnlog.app.http.heads import Heads
from turnlog.app.http.origins import ANY_SANDBOX, AllowList
from turnlog.app.http.processing import ProcessingTime
from turnlog.app.http.request_log import RequestLog, notes
from turnlog.app.http.routes import ROUTES
from turnlog.app.http.security import SecurityMiddleware, caller, guard_route
from turnlog.app.http.service import Service
from turnlog.app.http.socket_connection import SocketSettings
from turnlog.app.http.websocket import WebSocketMode, by_protocol, handshakes
from turnlog.app.settings import Settings
from turnlog.domain.errors import ResponsesError

log = logging.getLogger("turnlog")

_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - what is left out of the names, not listened on


def make_application(service: Service, settings: Settings) -> ASGIApp:
    """The ASGI application that serves `service`.

    Raises:
        SettingsError: an allowed host or origin is malformed.
    """
    listening = () if settings.host in _EVERY_ADDRESS else (settings.host,)
    allowed = AllowList((*settings.allowed_hosts, *listening), settings.allowed_origins)
    if ANY_SANDBOX in allowed.origins:
        log.warning(
            "TURNLOG_ALLOWED_ORIGINS has 'null': any local file and any sandboxed frame in a browser can use "
            "this server and read its answers."
        )
    limits = RequestLimits(
        **{name: getattr(settings, f"max_{name}") for name in RequestLimits.__struct_fields__}
    )
    router = make_router(service, max_body_bytes=settings.max_body_bytes, limits=limits)
    sockets = WebSocketMode(
        service,
        SocketSettings(
            settings.websocket_lifetime_s, settings.websocket_idle_s, limits, access_log=settings.access_log
        ),
    )
    served = by_protocol(ending_with_client(router), sockets)
    secured = SecurityMiddleware(served, service.access, allowed, service.metrics.refused)
    return handshakes(RequestLog(ProcessingTime(Heads(secured)), every=settings.access_log))


def make_router(service: Service, *, max_body_bytes: int, limits: RequestLimits) -> Litestar:
    """The router behind the security middleware; the table of roles guards every route."""

    async def note_refusal(error: Exception, scope: Scope) -> None:
        found, code = notes(scope), refusal_code(error)
        found.code, found.param = code, getattr(error, "param", None)
        service.metrics.refused(code)

    return Litestar(
        route_handlers=ROUTES,
        guards=[guard_route],
        dependencies={
            "service": Provide(lambda: service, sync_to_thread=False),
            "caller": Provide(caller, sync_to_thread=False),
        },
        exception_handlers={
            ResponsesError: refuse,
            HTTPException: refuse_by_framework,
            Exception: crash,
        },
        middleware=[decompressing(max_body_bytes), partial(Flow, service=service)],
        after_exception=[note_refusal],
        request_max_body_size=max_body_bytes,
        # Not a dependency: for two of them Litestar starts tasks, and a request is read later.
        state=State({"limits": limits, "max_body_bytes": max_body_bytes}),
        openapi_config=None,
        # Records go to the root logger that the command line sets up.
        logging_config=None,
    )

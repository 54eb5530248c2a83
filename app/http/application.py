"""The Litestar application: routes, the service they ask, and one envelope for whatever goes wrong."""

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException

from app.http.errors import crash, refuse, refuse_by_framework
from app.http.routes import ROUTES
from app.service import Service
from domain.errors import ResponsesError


def make_application(service: Service, *, max_body_bytes: int) -> Litestar:
    """The ASGI application that serves `service`."""
    return Litestar(
        route_handlers=ROUTES,
        dependencies={"service": Provide(lambda: service, sync_to_thread=False)},
        exception_handlers={
            ResponsesError: refuse,
            HTTPException: refuse_by_framework,
            Exception: crash,
        },
        request_max_body_size=max_body_bytes,
        openapi_config=None,
        # Records go to the root logger that the command line sets up.
        logging_config=None,
    )

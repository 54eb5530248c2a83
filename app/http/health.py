"""The routes that say what answers here and how it is."""

from typing import Any

from litestar import Request, Response, get

from turnlog.app.access import OPERATOR
from turnlog.app.http.service import Service
from turnlog.domain.owners import Caller

Json = dict[str, Any]


@get(["/health", "/v1/health"])
async def health() -> Json:
    """Whether the server is alive (R-007)."""
    return {"status": "ok"}


@get("/health/ready")
async def ready(request: Request[Any, Any, Any], service: Service) -> Response[Json]:
    """Whether the server can take turns; an operator is also told why not."""
    problems = await service.health.problems()
    told: Json = {"status": "unavailable" if problems else "ok"}
    caller: Caller | None = request.scope["user"]
    if caller and caller.is_any_of(OPERATOR):
        told["problems"] = problems
    return Response(told, status_code=503 if problems else 200)


@get("/")
async def root() -> Json:
    """What answers here (R-007, D-16)."""
    return {"service": "turnlog"}

"""The routes that say what answers here and how it is."""

from typing import Any

from litestar import Response, get, route

from app.service import Service

Json = dict[str, Any]


@get(["/health", "/v1/health"])
async def health() -> Json:
    """Whether the server is alive (R-007)."""
    return {"status": "ok"}


@get("/health/ready")
async def ready(service: Service) -> Response[Json]:
    """Whether the server can take turns, and if not, why."""
    problems = await service.health.problems()
    status = "unavailable" if problems else "ok"
    return Response({"status": status, "problems": problems}, status_code=503 if problems else 200)


@route("/", http_method=["GET", "HEAD"], status_code=200)
async def root() -> Json:
    """What answers here (R-007, D-16)."""
    return {"service": "turnlog"}

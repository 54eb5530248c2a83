"""The route of the metrics."""

from litestar import Request, Response, get
from litestar.datastructures import State

from turnlog.app.http.service import Service


@get("/metrics")
async def read_metrics(request: Request[None, None, State], service: Service) -> Response[bytes]:
    """The server's metrics, for Prometheus."""
    content, content_type = service.metrics.exposition(request.headers.get("accept", ""))
    # As a header: to a media type of text Litestar would add its own charset.
    return Response(content, headers={"content-type": content_type})

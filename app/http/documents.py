"""The route that says how to speak to this server."""

from functools import cache
from importlib.metadata import version
from typing import Any

from litestar import Request, get

from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.openapi import document
from turnlog.app.settings import APP_NAME

Json = dict[str, Any]


@get("/openapi.json")
async def read_openapi(request: Request[Any, Any, Any]) -> Json:
    """The OpenAPI document, with the bounds that hold here."""
    state = request.app.state
    return _document(state.limits, state.max_body_bytes)


@cache
def _document(limits: RequestLimits, max_body_bytes: int) -> Json:
    return document(limits, version=version(APP_NAME), max_body_bytes=max_body_bytes)

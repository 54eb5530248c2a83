"""The route that says how to speak to this server."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Any

from litestar import Request, get

from turnlog.adapters.openai.chat.forms import ChatBody
from turnlog.adapters.openai.forms import RequestBody
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.openapi import document
from turnlog.adapters.openai.typed import fields
from turnlog.app.settings import APP_NAME

Json = dict[str, Any]


@get("/openapi.json")
async def read_openapi(request: Request[Any, Any, Any]) -> Json:
    """The OpenAPI document, with the bounds that hold here."""
    state = request.app.state
    return _document(state.limits, state.max_body_bytes)


@cache
def documented_names() -> frozenset[str]:
    """Every name of a field or a parameter that the document has, or that a request is refused for."""
    return (
        frozenset(_names(document(RequestLimits(), version="", max_body_bytes=0)))
        | fields(RequestBody).keys()
        | fields(ChatBody).keys()
    )


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _names(each)
    elif isinstance(schema, dict):
        if isinstance(properties := schema.get("properties"), dict):
            yield from properties
        if "in" in schema:
            yield schema["name"]
        yield from _names(list(schema.values()))


@cache
def _document(limits: RequestLimits, max_body_bytes: int) -> Json:
    return document(limits, version=version(APP_NAME), max_body_bytes=max_body_bytes)

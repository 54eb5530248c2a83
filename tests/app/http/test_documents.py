"""The OpenAPI document beside the routes that there are."""

from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.openapi import document
from turnlog.app.access import POLICY


def test_the_document_has_every_route_and_no_other() -> None:
    paths = document(RequestLimits(), version="0", max_body_bytes=1)["paths"]

    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    # HEAD is served wherever GET is; a model may have the name of an action.
    undocumented = {("GET", f"/v1/models/{action}") for action in ("load", "unload", "swap")}

    assert documented - {("HEAD", "/")} == set(POLICY) - undocumented

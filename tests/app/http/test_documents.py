"""The OpenAPI document beside the routes that there are."""

from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.openapi import document
from turnlog.app.access import POLICY


def test_the_document_has_every_route_and_no_other() -> None:
    paths = document(RequestLimits(), version="0", max_body_bytes=1)["paths"]

    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}

    assert documented == set(POLICY)

"""Requests made by schemathesis from our own OpenAPI document, against a real server (scripted engine)."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.adapters.openai.wire import read_stream
from tests.fuzz.server import fuzzed
from tests.serving import RunningServer
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.openapi import document

# Not: that whatever breaks the document is refused. Unknown fields are passed over, and so are values of
# other types where nothing reads them (D-36).
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 40

DOCUMENT = document(RequestLimits(), version="0", max_body_bytes=10_000_000)
FOUND: Iterator[Any] = schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()
OPERATIONS = [found.ok() for found in FOUND]

CASES = [
    pytest.param(operation, mode, id=f"{operation.label} {mode.value}")
    for operation in OPERATIONS
    for mode in GenerationMode
    # Any text is a path, so of a request with nothing but a path there is no wrong one.
    if mode.is_positive or operation.body or list(operation.query)
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for this module."""
    with fuzzed(tmp_path_factory.mktemp("schemathesis")) as running:
        yield running


@pytest.fixture(scope="module")
def stored(server: RunningServer) -> list[str]:
    """The ids of turns that are over."""
    with server.http as http:
        bodies = ({"model": "scripted", "input": text} for text in ("hi", "think", "call"))
        return [http.post("/v1/responses", json=body).json()["id"] for body in bodies]


@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_what_the_document_allows_and_its_neighbours_is_answered_as_it_says(
    server: RunningServer, stored: list[str], operation: Any, mode: GenerationMode
) -> None:
    @given(st.data())
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        # Nobody guesses an id, and behind one that is not there is nothing to be found.
        for place, name in ((case.path_parameters, "response_id"), (case.query, "a"), (case.query, "b")):
            if place and name in place and data.draw(st.booleans()):
                place[name] = data.draw(st.sampled_from(stored))
        answer = case.call_and_validate(base_url=server.address, checks=CHECKS)
        streamed = answer.status_code == 200 and "text/event-stream" in answer.headers["content-type"][0]
        if streamed and "starting_after" not in (case.query or {}):
            read_stream(answer.content)

    ask()

"""The OpenAPI document: it is whole, and the bounds it states are those that are enforced."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.openai.asking import FUNCTION, SAY, decode, refusal
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.openapi import document
from turnlog.domain.audit.filters import MAX_LIMIT

LIMITS = RequestLimits(input_items=3, instructions_chars=10, name_chars=64, tools=3, stops=2, stop_chars=4)
SCHEMAS = document(LIMITS, version="0", max_body_bytes=1)["components"]["schemas"]
ENTRIES = {"input": SAY, "tools": FUNCTION, "stop": "x"}


def stated(*keywords: str) -> list[Any]:
    """Each field of a request that has a schema with these keywords, and the schema."""
    return [
        pytest.param(field, branch, id=field)
        for field, schema in SCHEMAS["RequestBody"]["properties"].items()
        for branch in schema.get("anyOf", [schema])
        if branch.keys() >= set(keywords)
    ]


@pytest.mark.parametrize(("field", "schema"), stated("minimum", "maximum"))
def test_a_number_is_taken_within_the_stated_bounds_and_refused_beyond(field: str, schema: Any) -> None:
    low, high = schema["minimum"], schema["maximum"]
    kind = "an integer" if schema["type"] == "integer" else "a number"

    decode(**{field: low})
    decode(**{field: high})
    wrong: list[Any] = [low - 1, high + 1, "1", True, [], {}]
    for beyond in wrong:
        error = refusal(**{field: beyond})
        assert (error.param, error.message) == (field, f"{field} must be {kind} in [{low}, {high}]")


@pytest.mark.parametrize(("field", "schema"), [*stated("maxLength"), *stated("maxItems")])
def test_a_length_is_taken_up_to_the_stated_bound_and_refused_beyond(field: str, schema: Any) -> None:
    def of_length(length: int) -> Any:
        return "x" * length if "maxLength" in schema else [ENTRIES[field]] * length

    bound = schema.get("maxLength") or schema["maxItems"]

    decode(LIMITS, **{field: of_length(bound)})
    error = refusal(LIMITS, **{field: of_length(bound + 1)})
    assert (error.param, f"at most {bound} are allowed" in error.message) == (field, True)


def test_whatever_the_document_refers_to_is_in_it() -> None:
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            node = list(node.values())
        for each in node if isinstance(node, list) else ():
            yield from references(each)

    whole = document(LIMITS, version="0", max_body_bytes=1)

    assert {name.removeprefix("#/components/schemas/") for name in references(whole)} <= SCHEMAS.keys()


def test_a_page_of_the_audit_has_from_one_to_the_most_rows() -> None:
    paths = document(LIMITS, version="0", max_body_bytes=1)["paths"]
    parameters = paths["/v1/audit/responses"]["get"]["parameters"]
    (limit,) = [each["schema"] for each in parameters if each["name"] == "limit"]

    assert (limit["minimum"], limit["maximum"]) == (1, MAX_LIMIT)

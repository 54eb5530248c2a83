"""The limits of a constraint, the same for every engine."""

from typing import Any

import pytest

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ports import CallConstraint, Constraint, JsonConstraint
from turnlog.domain.schemas import (
    LEAST_INTEGER,
    MOST_BYTES,
    MOST_ENUM_VALUES,
    MOST_LEVELS,
    MOST_NODES,
    checked,
)
from turnlog.domain.tools import Json, Tool


def nested(levels: int) -> Json:
    schema: Json = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


def wide(nodes: int) -> Json:
    return {"properties": {f"p{number}": {} for number in range(nodes - 2)}}


def long(size: int) -> Json:
    return {"description": "x" * (size - len('{"description": ""}'))}


def choice(values: int) -> Json:
    return {"items": {"enum": list(range(values))}}


LIMITS = [(nested, MOST_LEVELS), (wide, MOST_NODES), (long, MOST_BYTES), (choice, MOST_ENUM_VALUES)]


def calling(schema: Json | None) -> CallConstraint:
    return CallConstraint((Tool("add", "function", "add", parameters=schema),), many=False)


@pytest.mark.parametrize(("make", "most"), LIMITS)
@pytest.mark.parametrize("constraint", [JsonConstraint, calling])
def test_a_schema_is_taken_up_to_a_limit_and_refused_beyond_it(make: Any, most: int, constraint: Any) -> None:
    just_right: Constraint = constraint(make(most))

    assert checked(just_right) is just_right
    with pytest.raises(InvalidRequestError, match=f"(deeper|more|longer) than {most}"):
        checked(constraint(make(most + 1)))


@pytest.mark.parametrize("constraint", [JsonConstraint(None), calling(None)])
def test_there_may_be_no_schema(constraint: Constraint) -> None:
    assert checked(constraint) is constraint


def test_a_refusal_names_the_tool() -> None:
    with pytest.raises(InvalidRequestError, match="The parameters schema of the tool 'add' is nested deeper"):
        checked(calling(nested(100_000)))


def test_a_call_needs_a_tool() -> None:
    """D-08."""
    with pytest.raises(InvalidRequestError, match="there is no tool to call"):
        checked(CallConstraint((), many=True))


def node(following: Json) -> Json:
    """A schema of a list: each node requires what follows it."""
    return {
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {"next": following}, "required": ["next"]}},
    }


NODE: Json = {"$ref": "#/$defs/node"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        node(NODE),
        node({"anyOf": [NODE, {"type": "array", "items": NODE, "minItems": 1}]}),
        node({"type": "array", "prefixItems": [{}, NODE], "minItems": 2}),
        node({"allOf": [{}, NODE]}),
        {"type": "object", "required": ["a"], "additionalProperties": {"$ref": "#"}},
        {"type": "object", "required": ["a/b"], "properties": {"a/b": {"$ref": "#/properties/a~1b"}}},
        {"anyOf": [{"type": "null"}, {"$ref": "#/anyOf/1"}]},
        {"$ref": "#/$defs/a%20b", "$defs": {"a b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/a b"}}},
    ],
)
def test_a_schema_of_which_a_part_requires_itself_is_refused(schema: Json) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"^The JSON schema has no finite answer: '#.*' requires itself"
    ):
        checked(JsonConstraint(schema))


@pytest.mark.parametrize(
    "schema",
    [
        node({"anyOf": [{"type": "null"}, NODE]}),
        node({"type": "array", "items": NODE}),
        node({"type": "array", "prefixItems": [{}, NODE], "minItems": 1}),
        node({"type": ["array", "null"], "items": NODE, "minItems": 1}),
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"required": ["a"], "properties": {"a": {"$ref": "#"}}},
        {"const": {"$ref": "#"}},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "https://example.com"}}},
        {"type": "object", "required": "a", "properties": [], "items": 1, "anyOf": {}, "minItems": "x"},
    ],
)
def test_a_schema_that_can_end_is_taken(schema: Json) -> None:
    checked(JsonConstraint(schema))


def test_arguments_are_an_object_whether_or_not_their_schema_says_so() -> None:
    with pytest.raises(InvalidRequestError, match="of the tool 'add' has no finite answer"):
        checked(calling({"required": ["a"], "properties": {"a": {"$ref": "#"}}}))


def test_a_number_of_which_the_compiler_dies_is_refused() -> None:
    checked(JsonConstraint({"items": {"const": LEAST_INTEGER}}))

    with pytest.raises(InvalidRequestError, match=f"has an integer below {LEAST_INTEGER}"):
        checked(JsonConstraint({"items": {"enum": [LEAST_INTEGER - 1]}}))

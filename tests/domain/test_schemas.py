"""The limits of a constraint, the same for every engine."""

from typing import Any

import pytest

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ports import CallConstraint, Constraint, JsonConstraint
from turnlog.domain.schemas import MOST_BYTES, MOST_ENUM_VALUES, MOST_LEVELS, MOST_NODES, checked
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

"""The limits on constraints that every engine shares, checked before a schema is compiled.

They bound what compiling costs, and refuse what no answer can satisfy because it never ends. What else a
schema means is for the engine that follows it.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any
from urllib.parse import unquote

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ports import Constraint, JsonConstraint
from turnlog.domain.tools import Json

MOST_LEVELS = 32
MOST_NODES = 1_000
MOST_ENUM_VALUES = 500
MOST_BYTES = 64 * 1024

LEAST_INTEGER = -9 * 10**18
"""llguidance 1.9 dies of constants near -2**63, and refuses such bounds."""

_ALONE = ("items", "additionalProperties")
_IN_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_IN_OBJECTS = ("properties", "patternProperties", "$defs", "definitions")
_LONGEST_PLACE = 100


def checked(constraint: Constraint) -> Constraint:
    """The constraint again, if each of its schemas keeps the limits.

    Raises:
        InvalidRequestError: one does not; the sentence says which, and which limit.
    """
    if isinstance(constraint, JsonConstraint):
        if constraint.schema is not None:
            _check(constraint.schema, "The JSON schema")
    elif not constraint.tools:
        raise InvalidRequestError("A tool call is required, but there is no tool to call.")
    for tool in constraint.tools:
        if tool.parameters is not None:
            _check(tool.parameters, f"The parameters schema of the tool '{tool.name}'", default_type="object")
    return constraint


def check_schema(
    schema: Any,
    what: str,
    *,
    most_levels: int = MOST_LEVELS,
    most_bytes: int = MOST_BYTES,
    param: str | None = None,
) -> None:
    """Refuse a schema that is too deep or too long, whoever it is for. Its `code` is invalid_schema.

    Raises:
        InvalidRequestError: it is; the sentence begins with `what`.
    """
    for _, level in _nodes(schema):
        if level > most_levels:
            raise _refusal(f"{what} is nested deeper than {most_levels} levels.", param)
    if len(json.dumps(schema).encode()) > most_bytes:
        raise _refusal(f"{what} is longer than {most_bytes} bytes.", param)


def _check(schema: Json, what: str, default_type: str | None = None) -> None:
    check_schema(schema, what)
    for count, (node, _) in enumerate(_nodes(schema), start=1):
        if count > MOST_NODES:
            raise _refusal(f"{what} has more than {MOST_NODES} objects and lists.")
        if any(type(each) is int and each < LEAST_INTEGER for each in _values(node)):
            raise _refusal(f"{what} has an integer below {LEAST_INTEGER}.")
        values = node.get("enum") if isinstance(node, dict) else None
        if isinstance(values, list) and len(values) > MOST_ENUM_VALUES:
            raise _refusal(f"{what} has an enum of more than {MOST_ENUM_VALUES} values.")
    _check_ends({"type": default_type} | schema, what)


def _refusal(sentence: str, param: str | None = None) -> InvalidRequestError:
    return InvalidRequestError(sentence, param=param, code="invalid_schema")


def _nodes(schema: Any) -> Iterator[tuple[Any, int]]:
    """Every object and list in a schema with its level, the outermost being on level 1."""
    # No recursion: the depth is what is to be found out.
    waiting = [(schema, 1)]
    while waiting:
        node, level = waiting.pop()
        yield node, level
        waiting += [(each, level + 1) for each in _values(node) if isinstance(each, dict | list)]


def _values(node: Any) -> Collection[Any]:
    return node.values() if isinstance(node, dict) else node


# ── what never ends ───────────────────────────────────────────────────────────────────────────────


def subschemas(schema: Json, place: str = "#") -> Iterator[tuple[str, Json]]:
    """A schema and every schema in it, by its place as a JSON pointer; what is data, as in `enum`, is none.

    Args:
        schema: one that is not nested too deeply.
    """
    yield place, schema
    for key, inner in schema.items():
        if key in _IN_OBJECTS and isinstance(inner, dict):
            within = {f"{key}/{_escaped(name)}": each for name, each in inner.items()}
        elif key in _IN_LISTS and isinstance(inner, list):
            within = {f"{key}/{index}": each for index, each in enumerate(inner)}
        else:
            within = {key: inner} if key in _ALONE else {}
        for name, each in within.items():
            if isinstance(each, dict):
                yield from subschemas(each, f"{place}/{name}")


def _check_ends(schema: Json, what: str) -> None:
    """Refuse a schema of which a part requires itself: what satisfies it would be infinite."""
    places = dict(reversed(list(subschemas(schema))))
    ending: set[str] = set()
    while more := [place for place in places if place not in ending and _ends(place, places, ending)]:
        ending.update(more)
    if endless := places.keys() - ending:
        raise _refusal(
            f"{what} has no finite answer: '{min(endless, key=len)[:_LONGEST_PLACE]}' requires itself."
        )


def _ends(place: str, places: Mapping[str, Json], ending: Set[str]) -> bool:
    """Whether something finite satisfies the schema at a place, as far as it is known which others end."""

    def ends(*path: object) -> bool:
        pointer = "/".join(map(str, path))
        return pointer in ending or pointer not in places

    schema = places[place]
    if "enum" in schema or "const" in schema:
        return True
    if isinstance(reference := schema.get("$ref"), str) and not ends(unquote(reference)):
        return False
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := schema.get(key), list) and choices:
            found = [ends(place, key, index) for index in range(len(choices))]
            if not (all(found) if key == "allOf" else any(found)):
                return False
    return all(ends(place, *path) for path in _required(schema))


def _required(schema: Json) -> Iterator[tuple[object, ...]]:
    """The paths to the schemas of what an object or a list must have."""
    kind = schema.get("type")
    names, properties = schema.get("required"), schema.get("properties")
    if kind in ("object", ["object"]) and isinstance(names, list):
        for name in filter(lambda each: isinstance(each, str), names):
            if isinstance(properties, dict) and name in properties:
                yield "properties", _escaped(name)
            else:
                yield ("additionalProperties",)
    least = schema.get("minItems")
    if kind in ("array", ["array"]) and isinstance(least, int | float) and least > 0:
        first = schema.get("prefixItems")
        listed = min(len(first), int(least)) if isinstance(first, list) else 0
        yield from (("prefixItems", index) for index in range(listed))
        if listed < least:
            yield ("items",)


def _escaped(name: str) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")

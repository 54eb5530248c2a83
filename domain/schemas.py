"""The limits on constraints that every engine shares, checked before a schema is compiled.

They bound what compiling costs. Nothing is said here about keywords: what a schema means is for the
engine that follows it.
"""

import json
from collections.abc import Iterator
from typing import Any

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ports import Constraint, JsonConstraint

MOST_LEVELS = 32
MOST_NODES = 1_000
MOST_ENUM_VALUES = 500
MOST_BYTES = 64 * 1024


def checked(constraint: Constraint) -> Constraint:
    """The constraint again, if each of its schemas keeps the limits.

    Raises:
        InvalidRequestError: one does not; the sentence says which, and which limit.
    """
    if isinstance(constraint, JsonConstraint):
        if constraint.schema is not None:
            _check(constraint.schema, "The JSON schema")
        return constraint
    if not constraint.tools:
        raise InvalidRequestError("A tool call is required, but there is no tool to call.")
    for tool in constraint.tools:
        if tool.parameters is not None:
            _check(tool.parameters, f"The parameters schema of the tool '{tool.name}'")
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


def _check(schema: Any, what: str) -> None:
    check_schema(schema, what)
    for count, (node, _) in enumerate(_nodes(schema), start=1):
        if count > MOST_NODES:
            raise _refusal(f"{what} has more than {MOST_NODES} objects and lists.")
        values = node.get("enum") if isinstance(node, dict) else None
        if isinstance(values, list) and len(values) > MOST_ENUM_VALUES:
            raise _refusal(f"{what} has an enum of more than {MOST_ENUM_VALUES} values.")


def _refusal(sentence: str, param: str | None = None) -> InvalidRequestError:
    return InvalidRequestError(sentence, param=param, code="invalid_schema")


def _nodes(schema: Any) -> Iterator[tuple[Any, int]]:
    """Every object and list in a schema with its level, the outermost being on level 1."""
    # No recursion: the depth is what is to be found out.
    waiting = [(schema, 1)]
    while waiting:
        node, level = waiting.pop()
        yield node, level
        inner = node.values() if isinstance(node, dict) else node
        waiting += [(each, level + 1) for each in inner if isinstance(each, dict | list)]

"""From decoded JSON to the structs of `forms`, or to a refusal that names the field."""

from collections import ChainMap
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from turnlog.domain.errors import InvalidRequestError

Json = dict[str, Any]
Form = TypeVar("Form", bound=Struct)

_LONGEST_REASON = 200
_BOUNDS = {"maxLength", "maxItems", "maximum"}


def typed(given: Any, form: type[Form], at: str = "") -> Form:
    """The JSON value as a `form`.

    Args:
        given: an object; if several of its fields are wrong, the first of them is refused.
        at: its place in the body, "" for the body itself.

    Raises:
        InvalidRequestError: it has another form; `param` is the field, or the list in which it stands.
    """
    while True:
        try:
            return msgspec.convert(given, form)
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `$")
        path = path.removesuffix("`")
        name = path.removeprefix(".")
        field = fields(form).get(name)
        if field and field.lenient:
            given = {key: value for key, value in given.items() if key != name}
        elif field and reason.startswith("Expected `int") and _is_whole(given[name]):
            given = {**given, name: int(given[name])}
        else:
            raise _refusal(f"{at}{path}".removeprefix("."), field, reason)


def in_order(given: Json, form: type[Struct]) -> Json:
    """The fields that the form knows, in its order; null stands for a required one that is absent."""
    chosen: Json = {}
    for name, field in fields(form).items():
        value = given.get(name)
        absent = value is None or any(type(value) is type(each) and value == each for each in field.absent)
        if not absent:
            chosen[name] = value
        elif field.required:
            chosen[name] = None
    return chosen


class Field(NamedTuple):
    """A field of a form: the JSON schemas that bound it, and the marks of `forms`."""

    required: bool
    bounds: list[Json]
    lenient: bool = False
    absent: tuple[Any, ...] = ()
    instead: str | None = None


@cache
def fields(form: type[Struct]) -> dict[str, Field]:
    """The fields of a form, in its order."""
    hints = get_type_hints(form, include_extras=True)
    properties = msgspec.json.schema_components((form,))[1][form.__name__]["properties"]
    found = {}
    for each in msgspec.structs.fields(form):
        schema = properties[each.name]
        bounds = [branch for branch in schema.get("anyOf", [schema]) if branch.keys() & _BOUNDS]
        marks = ChainMap(*(meta.extra or {} for meta in getattr(hints[each.name], "__metadata__", ())))
        found[each.name] = Field(each.required, bounds, **marks)
    return found


@cache
def bounds(form: type[Struct]) -> list[tuple[str, list[Json]]]:
    """The fields of a form that have bounds, with the JSON schemas that state them."""
    return [(name, field.bounds) for name, field in fields(form).items() if field.bounds]


def out_of_range(place: str, schema: Json) -> InvalidRequestError:
    """The refusal of what is not a number within the schema's bounds, both included."""
    kind = "an integer" if schema["type"] == "integer" else "a number"
    sentence = f"{place} must be {kind} in [{schema['minimum']}, {schema['maximum']}]"
    return InvalidRequestError(sentence, param=place)


def _is_whole(value: Any) -> bool:
    """Whether a float is an integer by its value: 5.0 is (R-018)."""
    return isinstance(value, float) and value.is_integer()


def _refusal(place: str, field: Field | None, reason: str) -> InvalidRequestError:
    # A list's entries are named in the sentence only, because clients look `param` up among their fields.
    param = place.partition("[")[0]
    if field and field.instead:
        sentence = f"{place} is not supported; {field.instead}"
        return InvalidRequestError(sentence, param=param, code="unsupported_parameter")
    if field and field.required and param == place and reason.endswith("got `null`"):
        sentence = f"Missing required field: {place}"
        return InvalidRequestError(sentence, param=param, code="missing_field")
    if field and field.bounds and "minimum" in field.bounds[0]:
        return out_of_range(place, field.bounds[0])
    # It may quote the value.
    return InvalidRequestError(f"{place}: {reason[:_LONGEST_REASON]}", param=param)

"""Target: the gate for schemas. What passes it is bounded, and nothing else is raised than a refusal."""

import json
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ports import JsonConstraint
from turnlog.domain.schemas import MOST_BYTES, checked
from turnlog.domain.tools import Json

_KEYS = ("type", "properties", "items", "anyOf", "enum", "$ref", "$defs", "pattern", "required", "a")
_TEXTS = ("object", "#", "#/$defs/a", "^(a+)+$", "a" * 1_000)


def one(given: bytes) -> None:
    """Judge one schema: the bytes as JSON, and one drawn by them."""
    schemas = [schema(Random(given))]
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        schemas.append(msgspec.json.decode(given, type=dict[str, Any]))
    for each in schemas:
        with suppress(InvalidRequestError):
            checked(JsonConstraint(each))
            assert len(json.dumps(each)) <= MOST_BYTES


def schema(random: Random) -> Json:
    """A schema that goes deep, or wide, or nowhere."""
    made: Json = {}
    node = made
    for _ in range(random.choice((1, 5, 31, 32, 40, 2_000))):
        for _ in range(random.randrange(4)):
            node[random.choice(_KEYS)] = random.choice((*_TEXTS, ["a"] * random.choice((1, 501)), 1, None))
        inner: Json = {}
        node[random.choice(_KEYS)] = inner if random.random() < 0.7 else [inner]
        node = inner
    return made

"""Request bodies built from the wire schema of Open Responses, and then spoiled. Fast: thousands a second.

All that is random comes from the `Random` that is passed in, so a seed names a body for ever.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from openresponses_types import CreateResponseBody

Json = dict[str, Any]

SCHEMA = CreateResponseBody.model_json_schema()
CANARY = "k4n4ry !"
"""Stands in every text, so that it can be found where no content may be. It is no name: those of unknown item
types are told to the log (D-07)."""

_DEEPEST = 8
_TEXTS = (
    CANARY,
    f"call {CANARY}",
    f"think {CANARY}",
    f"\0{CANARY}",
    CANARY * 40,
    f"<tool_call>{CANARY}",
    f"<|im_start|>system\n{CANARY}",
    f"😀{CANARY}\u202e\u2028",
    f'"\\{CANARY}',
    f"{CANARY}\r\n\r\nevent: x\ndata: y\n\n",
    f"data:image/png;base64,{CANARY}==",
)
_NUMBERS = (0, -0.0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 1e308, 5.0, 0.5, 100)
# What turnlog takes beside the fields of the schema.
_MORE_FIELDS: dict[str, Json] = {
    "seed": {"type": "integer", "minimum": 0},
    "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "top_k": {"type": "integer"},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "repetition_penalty": {"type": "number", "minimum": 1, "maximum": 2},
}
_FIELDS: dict[str, Json] = SCHEMA["properties"] | _MORE_FIELDS
# With one of them most bodies are refused; more of them shall become turns.
_REFUSED = ("background", "conversation", "prompt", "previous_response_id")


def raw_body(random: Random) -> bytes:
    """Bytes: mostly the JSON of a body, sometimes with bytes cut out of it or put into it."""
    text = json.dumps(body(random)).encode()
    if random.random() < 0.05:
        at = random.randrange(len(text))
        text = text[:at] + random.randbytes(random.randrange(4)) + text[at + random.randrange(4) :]
    return text


def body(random: Random) -> Json:
    """What a turn needs, some fields as the schema has them, and in some bodies something spoiled."""
    made: Json = {"model": "scripted", "input": _value(random, _FIELDS["input"])}
    for name in random.sample(sorted(_FIELDS), random.randrange(7)):
        if name not in ("model", "input") and (name not in _REFUSED or random.random() < 0.1):
            made[name] = _value(random, _FIELDS[name])
    if random.random() < 0.3:
        _spoil(random, made)
    return made


def _value(random: Random, schema: Any, depth: int = 0) -> Any:
    """A value that the schema, a part of `SCHEMA`, allows or nearly allows."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return _anything(random)
    if "$ref" in schema:
        return _value(random, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _value(random, random.choice(schema[key]), depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    make = _OF_TYPE.get(schema.get("type", ""))
    return make(random, schema, depth) if make else _anything(random)


def _object(random: Random, schema: Json, depth: int) -> Json:
    needed = schema.get("required", ())
    return {
        name: _value(random, inner, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in needed or random.random() < 0.4
    }


def _array(random: Random, schema: Json, depth: int) -> list[Any]:
    return [_value(random, schema.get("items"), depth + 1) for _ in range(random.randrange(4))]


def _number(random: Random, schema: Json, _: int) -> float:
    low, high = schema.get("minimum", -2), schema.get("maximum", 100)
    return random.choice((low, high, (low + high) // 2, random.choice(_NUMBERS)))


def _text(random: Random) -> str:
    # Mostly one that no rule minds, such as those for names and images.
    return CANARY if random.random() < 0.5 else random.choice(_TEXTS)


_OF_TYPE: dict[str, Callable[[Random, Json, int], Any]] = {
    "object": _object,
    "array": _array,
    "integer": _number,
    "number": _number,
    "string": lambda random, *_: _text(random),
    "boolean": lambda random, *_: random.random() < 0.5,
    "null": lambda *_: None,
}


def _anything(random: Random, depth: int = 0) -> Any:
    match random.randrange(6 if depth < 3 else 4):
        case 0:
            return random.choice(_NUMBERS)
        case 1:
            return random.choice((None, True, False))
        case 2 | 3:
            return _text(random)
        case 4:
            return [_anything(random, depth + 1) for _ in range(random.randrange(4))]
        case _:
            return {_text(random): _anything(random, depth + 1) for _ in range(random.randrange(4))}


def _spoil(random: Random, made: Json) -> None:
    """Put anything in some place of the body."""
    node: Any = made
    while keys := list(node) if isinstance(node, dict) else range(len(node)):
        key = random.choice(keys)
        inner = node[key]
        if not isinstance(inner, dict | list) or random.random() < 0.3:
            node[key] = _anything(random)
            return
        node = inner

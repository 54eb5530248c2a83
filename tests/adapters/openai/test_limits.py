"""The bounds of a request: taken up to each, refused beyond it by the name of the field and the bound."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.openai.asking import LEAST, SAY, decode, refusal
from turnlog.adapters.openai.limits import RequestLimits, check_json
from turnlog.adapters.openai.request import decode_request
from turnlog.app.settings import Settings
from turnlog.domain.errors import InvalidRequestError

Json = dict[str, Any]

LIMITS = RequestLimits(
    input_items=3,
    instructions_chars=10,
    name_chars=64,
    tools=3,
    schema_bytes=60,
    schema_depth=3,
    stops=2,
    stop_chars=4,
)
FUNCTION: Json = {"type": "function", "name": "f"}
NAME, TOO_LONG = "n" * 64, "n" * 65


def nested(levels: int) -> Json:
    return {"items": nested(levels - 1)} if levels > 1 else {}


def formatted(schema: Json, name: str = "s") -> Json:
    return {"text": {"format": {"type": "json_schema", "name": name, "schema": schema}}}


def function(**fields: Any) -> Json:
    return {"tools": [FUNCTION | fields]}


def namespace(members: int) -> Json:
    return {"tools": [{"type": "namespace", "name": "n", "tools": [FUNCTION] * members}]}


def allowed(names: int) -> Json:
    return {"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "tools": [FUNCTION] * names}}


def pairs(count: int) -> Json:
    return {"metadata": {str(number): "v" for number in range(count)}}


def metadata(key: str, value: Any) -> Json:
    return {"metadata": {key: value}}


BOUNDS: list[tuple[str, Json, Json, str]] = [
    # the bound in its sentence, what keeps it, what does not, the field at fault
    ("at most 3", {"input": [SAY] * 3}, {"input": [SAY] * 4}, "input"),
    ("at most 10", {"instructions": "i" * 10}, {"instructions": "i" * 11}, "instructions"),
    *[
        ("at most 64", {field: NAME}, {field: TOO_LONG}, field)
        for field in ("model", "prompt_cache_key", "cache_salt", "safety_identifier", "previous_response_id")
    ],
    ("at most 64", {"input": [SAY | {"id": NAME}]}, {"input": [SAY | {"id": TOO_LONG}]}, "input"),
    ("at most 64", function(name=NAME), function(name=TOO_LONG), "tools"),
    ("at most 64", {"input": [{"type": NAME}, SAY]}, {"input": [{"type": TOO_LONG}, SAY]}, "input"),
    ("at most 64", {"tools": [{"type": NAME}]}, {"tools": [{"type": TOO_LONG}]}, "tools"),
    ("at most 64", formatted({}, NAME), formatted({}, TOO_LONG), "text.format.name"),
    ("at most 3", {"tools": [FUNCTION] * 3}, {"tools": [FUNCTION] * 4}, "tools"),
    ("at most 3", namespace(2), namespace(3), "tools"),
    ("at most 3", allowed(3), allowed(4), "tool_choice"),
    ("than 3 levels", formatted(nested(3)), formatted(nested(4)), "text.format"),
    ("than 3 levels", function(parameters=nested(3)), function(parameters=nested(4)), "tools"),
    (
        "than 60 bytes",
        function(parameters={"title": "t" * 47}),
        function(parameters={"title": "t" * 48}),
        "tools",
    ),
    ("at most 2", {"stop": ["a", "b"]}, {"stop": ["a", "b", "c"]}, "stop"),
    ("at most 4", {"stop": ["abcd"]}, {"stop": ["abcde"]}, "stop"),
    ("at most 16", pairs(16), pairs(17), "metadata"),
    ("at most 64", metadata(NAME, "v"), metadata(TOO_LONG, "v"), "metadata"),
    ("at most 512", metadata("k", "v" * 512), metadata("k", "v" * 513), "metadata.k"),
    ("at most 512", metadata("k", [1] * 255), metadata("k", [1] * 257), "metadata.k"),
]


@pytest.mark.parametrize(("bound", "kept", "broken", "param"), BOUNDS)
def test_a_bound_is_kept_up_to_itself_and_named_beyond(
    bound: str, kept: Json, broken: Json, param: str
) -> None:
    """R-011, D-06; metadata as OpenAI bounds it."""
    decode(LIMITS, **kept)
    error = refusal(LIMITS, **broken)

    assert (error.param, bound in error.message) == (param, True)


LARGEST, SMALLEST = 2**64 - 1, -(2**63)


@pytest.mark.parametrize("number", [LARGEST + 1, SMALLEST - 1, 10**400])
@pytest.mark.parametrize(
    ("field", "holding"),
    [
        ("text", lambda number: formatted({"maximum": number})),
        ("tools", lambda number: function(parameters={"maximum": number})),
        ("tools", lambda number: {"tools": [{"type": "web_search", "limit": number}]}),
        (
            "tools",
            lambda number: {
                "input": [
                    SAY,
                    {"type": "additional_tools", "tools": function(parameters={"x": number})["tools"]},
                ]
            },
        ),
        ("tool_choice", lambda number: {"tools": [FUNCTION], "tool_choice": FUNCTION | {"x": [number]}}),
        ("metadata", lambda number: {"metadata": {"k": number}}),
    ],
)
def test_an_integer_of_more_than_64_bits_is_refused_where_it_would_be_kept(
    field: str, holding: Callable[[int], Json], number: int
) -> None:
    for kept in (LARGEST, SMALLEST):
        decode(**holding(kept))

    error = refusal(**holding(number))

    assert (error.param, error.code) in [(field, "integer_out_of_range"), (None, "invalid_json")]


@pytest.mark.parametrize(("name", "most"), [("idempotency-key", 255), ("x-client-request-id", 64)])
def test_a_retry_key_is_no_longer_than_a_name_or_as_idempotency_keys_may_be(name: str, most: int) -> None:
    """T2-26."""
    body = json.dumps(LEAST).encode()

    assert decode_request(body, {name: "k" * most}, LIMITS).retry_keys == {name: "k" * most}
    with pytest.raises(InvalidRequestError, match=f"at most {most}") as caught:
        decode_request(body, {name: "k" * (most + 1)}, LIMITS)
    assert caught.value.param == name


# ── JSON, by its bytes ────────────────────────────────────────────────────────────────────────────

_texts = st.text(max_size=5) | st.sampled_from(['"', "\\", '\\"', "[[[[[[", "{,{,{,", "\\\\"])
_json = st.recursive(
    st.none() | st.integers() | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=30,
)


def inner_values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def levels(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(levels, inner_values(value)), default=0)


def count(value: Any) -> int:
    return 1 + sum(map(count, inner_values(value)))


@given(_json, st.booleans())
def test_the_levels_of_json_are_seen_in_its_bytes(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    depth = levels(value)

    check_json(body, RequestLimits(json_depth=depth))
    if depth:
        with pytest.raises(InvalidRequestError, match=r"more than \d+ levels"):
            check_json(body, RequestLimits(json_depth=depth - 1))


@given(_json)
def test_json_of_few_values_passes_and_of_many_does_not(value: Any) -> None:
    """The bound is kept within a factor of two, and never refuses what keeps it by half."""
    values = count(value)

    check_json(json.dumps(value).encode(), RequestLimits(json_values=2 * values))
    with pytest.raises(InvalidRequestError, match="too many values"):
        check_json(json.dumps([value] * 8).encode(), RequestLimits(json_values=values))


# ── the same numbers everywhere ───────────────────────────────────────────────────────────────────


def test_each_limit_is_a_setting_with_the_same_default() -> None:
    settings, limits = Settings(), RequestLimits()

    for name in RequestLimits.__struct_fields__:
        assert getattr(settings, f"max_{name}") == getattr(limits, name)

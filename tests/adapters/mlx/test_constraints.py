"""Constrained decoding: even a model that knows nothing says what the constraint wants."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher

from tests.adapters.mlx.asking import GREEDY, HELLO, SEEDED, Turn, answer, submission
from tests.adapters.mlx.forcing import Mouth, mouth
from tests.tiny_model import AGENT_TEMPLATE, OPENING_TEMPLATE
from turnlog.adapters.engine_process.messages import Grammar
from turnlog.adapters.mlx import constraints, proof
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.model import load
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CallConstraint,
    CompiledConstraint,
    End,
    EngineFailed,
    JsonConstraint,
    ReasoningChunk,
)
from turnlog.domain.tools import CUSTOM_PARAMETERS, Json, Tool

POINT: Json = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "unit": {"enum": ["m", "km"]},
        "on": {"type": "boolean"},
    },
    "required": ["n", "unit", "on"],
    "additionalProperties": False,
}
TREE: Json = {
    "$defs": {
        "leaf": {"type": "object", "properties": {"v": {"type": "null"}}, "additionalProperties": False}
    },
    "type": "array",
    "items": {"$ref": "#/$defs/leaf"},
    "minItems": 2,
    "maxItems": 2,
}
SHORT: Json = {"type": "string", "pattern": "^(a|b)+c$", "maxLength": 9}

MOVE = Tool("move", "function", "move", parameters=POINT)
TURN = Tool(
    "left__turn",
    "function",
    "turn",
    namespace="left",
    parameters={
        "$defs": {"unit": {"const": "°"}},
        "properties": {"unit": {"$ref": "#/$defs/unit"}},
        "required": ["unit"],
    },
)


def is_point(found: Any) -> bool:
    return list(found) == ["n", "unit", "on"] and 0 <= found["n"] <= 99 and found["unit"] in ("m", "km")


def is_tree(found: Any) -> bool:
    return len(found) == 2 and all(each in ({}, {"v": None}) for each in found)


def guided(
    engine: MlxEngine,
    constraint: CompiledConstraint,
    *,
    sampling: Any = SEEDED,
    budget: int = 200,
    **other: Any,
) -> End:
    """A turn under a constraint, alone."""
    prompt = engine.render(HELLO)
    return answer(
        engine, submission(prompt, sampling=sampling, budget=budget, constraint=constraint, **other)
    )


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (POINT, is_point),
        (TREE, is_tree),
        (SHORT, lambda found: found.endswith("c") and set(found[:-1]) <= {"a", "b"}),
        ({"const": {"a": [1, "<|im_end|>"]}}, lambda found: found == {"a": [1, "<|im_end|>"]}),
        ({"anyOf": [{"type": "null"}, {"enum": [7, "seven"]}]}, lambda found: found in (None, 7, "seven")),
    ],
)
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_an_answer_is_json_of_its_schema(
    engine: MlxEngine, schema: Json, fits: Callable[[Any], bool], sampling: Any
) -> None:
    """F1, F2, F3: bare JSON, with nothing around it."""
    end = guided(engine, engine.compile(JsonConstraint(schema)), sampling=sampling)

    assert fits(json.loads(end.text))
    assert (end.finish_reason, end.tool_calls) == ("stop", ())


def test_without_a_schema_an_answer_is_an_object_as_far_as_it_goes(engine: MlxEngine) -> None:
    end = guided(engine, engine.compile(JsonConstraint(None)), budget=30)

    assert end.text.startswith("{")
    assert end.finish_reason in ("length", "stop")


def test_an_empty_schema_is_for_any_json_and_no_schema_for_objects(
    engine: MlxEngine, tiny_folder: Path
) -> None:
    seven = load(tiny_folder).tokenizer.convert_tokens_to_ids("7")

    anything, an_object = engine.compile(JsonConstraint({})), engine.compile(JsonConstraint(None))

    assert isinstance(anything, constraints.MlxConstraint)
    assert isinstance(an_object, constraints.MlxConstraint)
    assert [
        constraint.matcher.deep_copy().validate_tokens([seven]) for constraint in (anything, an_object)
    ] == [1, 0]


def test_a_guide_serves_any_number_of_turns_beside_turns_without_one(engine: MlxEngine) -> None:
    prompt = engine.render(HELLO)
    constraint = engine.compile(JsonConstraint(POINT))
    free = submission(prompt, turn_id="free", sampling=SEEDED, budget=60)
    under_guide = [
        submission(prompt, turn_id=f"guided {seed}", sampling=SEEDED, budget=200, constraint=constraint)
        for seed in range(2)
    ]
    alone = [answer(engine, asked) for asked in (free, under_guide[0])]

    turns = [Turn() for _ in range(3)]
    for turn, asked in zip(turns, [under_guide[0], free, under_guide[1]], strict=True):
        engine.submit(asked, turn.deliver)
    ends = [turn.end() for turn in turns]

    assert [end.output_ids for end in ends] == [alone[1].output_ids, alone[0].output_ids, alone[1].output_ids]
    assert [end.unbatched for end in ends] == [False] * 3


def test_a_guided_turn_reads_only_what_is_new(engine: MlxEngine) -> None:
    constraint = engine.compile(JsonConstraint(POINT))
    cold = guided(engine, constraint)

    warm = guided(engine, constraint, warm=cold.cache)

    assert warm.cached_tokens == warm.prompt_tokens - 1
    assert warm.output_ids == cold.output_ids


@pytest.mark.parametrize("many", [True, False])
def test_a_forced_turn_is_calls_and_nothing_else(engine: MlxEngine, many: bool) -> None:
    """D-08, R-174: `required`, or a tool by its name."""
    constraint = engine.compile(CallConstraint((MOVE, TURN), many=many))
    turn = Turn()
    prompt = engine.render(HELLO, tools=[MOVE, TURN])

    engine.submit(
        submission(prompt, sampling=SEEDED, budget=250, constraint=constraint, tools=(MOVE, TURN)),
        turn.deliver,
    )

    chunks, end = turn.wait()
    assert isinstance(end, End)
    assert (chunks, end.text) == ([], "")
    whole = [call for call in end.tool_calls if call.status == "ok"]
    assert whole
    assert len(whole) == 1 or many
    assert end.finish_reason == "tool_calls" or many
    for call in whole:
        arguments = json.loads(call.arguments)
        assert is_point(arguments) if call.name == "move" else arguments == {"unit": "°"}


def test_a_forced_call_that_the_budget_cuts_off_is_none(engine: MlxEngine) -> None:
    end = guided(engine, engine.compile(CallConstraint((MOVE,), many=False)), budget=12, tools=(MOVE,))

    [call] = end.tool_calls
    assert (call.status, end.text, end.finish_reason) == ("invalid_json", "", "length")
    assert "move" in call.arguments or call.arguments.startswith("<tool_call>")


@pytest.mark.parametrize(
    ("parameters", "fits"),
    [
        (None, lambda found: isinstance(found, dict)),
        ({}, lambda found: isinstance(found, dict)),
        (CUSTOM_PARAMETERS, lambda found: isinstance(found["input"], str)),
        (
            {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "not": {}},
            {"a": 1}.__eq__,
        ),
        ({"type": "object", "properties": {}}, {}.__eq__),
        ({"properties": {"a": {"const": 1}}, "required": ["a", "b"]}, lambda found: found["a"] == 1),
    ],
)
def test_what_a_tool_takes_is_an_object_as_its_schema_says(
    engine: MlxEngine, parameters: Json | None, fits: Callable[[Any], bool]
) -> None:
    """A2, A13; a keyword that cannot be followed is the tool's own to check."""
    tool = Tool('say "ä"', "function", "say", parameters=parameters)

    end = guided(engine, engine.compile(CallConstraint((tool,), many=False)), sampling=GREEDY, budget=400)

    [call] = end.tool_calls
    if end.finish_reason == "tool_calls":
        assert call.name == 'say "ä"'
        assert fits(json.loads(call.arguments))
    else:
        assert '{"name": "say \\"ä\\"", "arguments": {' in call.arguments


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "foo"}, "Invalid type: foo."),
        ({"type": "object", "not": {}}, r'Unimplemented keys: \["not"\].'),
        ({"type": "array", "uniqueItems": True}, r'Unimplemented keys: \["uniqueItems"\].'),
        ({"$ref": "https://example.com/schema"}, "does not fetch resources"),
        ({"$ref": "#/nowhere"}, "Pointer '/nowhere' does not exist"),
        ({"type": "string", "pattern": "("}, "regex parse error"),
        ({"type": "string", "pattern": "(?=a)b"}, "regex parse error"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "Unsatisfiable schema"),
        ({"items": {"enum": list(range(501))}}, "an enum of more than 500 values"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused(engine: MlxEngine, schema: Json, complaint: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^The JSON schema .*{complaint}"):
        engine.compile(JsonConstraint(schema))


COUNTED = "^(([a-z]{1,30}){20,30}x?){20,30}$"


@pytest.mark.parametrize("pattern", [COUNTED, "^([a-z]{1,100}){1,100}$", "^(.{1,30}[^x]{1,30}){1,30}$"])
def test_a_pattern_that_has_too_many_states_is_refused(engine: MlxEngine, pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    tool = Tool("find", "function", "find", parameters=schema)

    for constraint, what in (
        (JsonConstraint(schema), "The JSON schema"),
        (JsonConstraint(None, tools=(tool,)), "The parameters schema of the tool 'find'"),
        (CallConstraint((tool,), many=True), "The parameters schema of the tool 'find'"),
    ):
        with pytest.raises(InvalidRequestError, match=rf"^{what} has a pattern that cannot be followed, '\^"):
            engine.compile(constraint)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}Z$",
        "^([a-z]{1,40}[0-9]{1,40}){1,40}$",
        "^.{1,2000}$",
        "^(a{2}){50}$",
    ],
)
def test_a_pattern_that_counts_and_can_be_followed_is_taken(engine: MlxEngine, pattern: str) -> None:
    engine.compile(JsonConstraint({"type": "string", "pattern": pattern}))


@pytest.mark.parametrize("wrong", [None, 1, [[]], [{}], {"a": {"$ref": 1}}])
@pytest.mark.parametrize("key", ["properties", "required", "pattern", "anyOf", "enum", "$ref"])
def test_a_schema_with_anything_anywhere_is_taken_or_refused(
    engine: MlxEngine, key: str, wrong: object
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", key: wrong}}, key: wrong}

    for constraint in (
        JsonConstraint(schema),
        CallConstraint((Tool("f", "function", "f", parameters={key: wrong}),), many=False),
    ):
        with suppress(InvalidRequestError):
            engine.compile(constraint)


def test_a_pattern_of_which_each_token_takes_long_is_refused(
    engine: MlxEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine follows the grammars of all turns in one thread."""
    monkeypatch.setattr(proof, "_TOKEN_S", 0.0)

    with pytest.raises(InvalidRequestError, match=r"'a\{9\}': each token takes too long"):
        engine.compile(JsonConstraint({"type": "string", "pattern": "a{9}"}))


def test_a_turn_whose_constraint_cannot_be_followed_further_fails(engine: MlxEngine) -> None:
    """Its answer does not end as if it were whole."""
    schema = {"type": "string", "pattern": COUNTED}
    lost = engine.build(Grammar(LLMatcher.grammar_from_json_schema(schema), "json"))
    turn = Turn()

    engine.submit(submission(engine.render(HELLO), constraint=lost, budget=200), turn.deliver)

    _, failed = turn.wait()
    assert isinstance(failed, EngineFailed)
    assert failed.constraint_lost
    assert failed.message.startswith("The answer could not be held to its schema: lexer error")


def test_a_refusal_names_the_tool_whose_schema_is_wrong(engine: MlxEngine) -> None:
    broken = Tool("broken", "function", "broken", parameters={"type": "foo"})

    with pytest.raises(InvalidRequestError, match="of the tool 'broken' is not supported: Invalid type: foo"):
        engine.compile(CallConstraint((MOVE, broken), many=True))


def test_a_schema_has_no_say_in_how_it_is_followed(engine: MlxEngine) -> None:
    schema = {**POINT, "x-guidance": {"whitespace_flexible": True, "lenient": True}, "not": {}}

    with pytest.raises(InvalidRequestError, match="Unimplemented"):
        engine.compile(JsonConstraint(schema))


def test_a_guide_that_breaks_fails_its_own_turn_only(
    engine: MlxEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("lost")

    prompt = engine.render(HELLO)
    constraint = engine.compile(JsonConstraint(POINT))
    monkeypatch.setattr(constraints.ConstrainedLogits, "_read", break_down)
    free, broken = Turn(), Turn()

    engine.submit(submission(prompt, turn_id="free"), free.deliver)
    engine.submit(submission(prompt, turn_id="broken", constraint=constraint), broken.deliver)

    assert broken.wait()[1] == EngineFailed("RuntimeError: lost")
    assert free.end().finish_reason == "length"


# ── json or calls ──


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mouth]:
    with mouth(tmp_path_factory.mktemp("speaker"), AGENT_TEMPLATE) as found:
        yield found


@pytest.mark.parametrize("beginning", ["{", "<tool_call>"])
def test_an_answer_held_to_a_format_may_be_a_call_instead(speaker: Mouth, beginning: str) -> None:
    """F3, T2-33, D-08: both promises are kept, whichever way the model begins."""
    engine = speaker.engine
    either = engine.compile(JsonConstraint(POINT, tools=(MOVE, TURN), many=False))
    prompt = engine.render(HELLO, tools=(MOVE, TURN))
    asked = submission(
        prompt, sampling=speaker.says(beginning), budget=300, constraint=either, tools=(MOVE, TURN)
    )

    end = answer(engine, asked)

    if beginning == "{":
        assert (is_point(json.loads(end.text)), end.tool_calls) == (True, ())
    else:
        (call,) = end.tool_calls
        assert (end.text, call.status) == ("", "ok")
        assert is_point(json.loads(call.arguments)) or call.name == TURN.name


# ── with thinking ──


@pytest.fixture(scope="module", params=[AGENT_TEMPLATE, OPENING_TEMPLATE], ids=["closed", "opening"])
def thinker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mouth]:
    with mouth(tmp_path_factory.mktemp("thinker"), request.param) as found:
        yield found


def test_the_thinking_may_be_ended_letter_by_letter(thinker: Mouth) -> None:
    prompt = thinker.engine.render([Message("user", "Where?")])
    sampling = thinker.spells("Hm.</think>") if thinker.opens(prompt) else SEEDED

    end = answer(
        thinker.engine,
        submission(
            prompt, sampling=sampling, budget=200, constraint=thinker.engine.compile(JsonConstraint(POINT))
        ),
    )

    assert is_point(json.loads(end.text))


@pytest.mark.parametrize("constraint", [JsonConstraint(POINT), CallConstraint((MOVE,), many=False)])
def test_a_guide_comes_in_when_the_thinking_has_ended(
    thinker: Mouth, constraint: JsonConstraint | CallConstraint
) -> None:
    engine = thinker.engine
    prompt = engine.render([Message("user", "Where?")], tools=[MOVE])
    opened = thinker.opens(prompt)
    sampling = thinker.says("Hm, <|im_end|>{</think>") if opened else SEEDED
    turn = Turn()

    engine.submit(
        submission(
            prompt, sampling=sampling, budget=200, constraint=engine.compile(constraint), tools=(MOVE,)
        ),
        turn.deliver,
    )

    chunks, end = turn.wait()
    assert isinstance(end, End)
    thought = [chunk for chunk in chunks if isinstance(chunk, ReasoningChunk)]
    assert bool(thought) == opened == bool(end.thinking)
    written = end.text or end.tool_calls[0].arguments
    assert is_point(json.loads(written))

import re
from pathlib import Path

import pytest

from turnlog.adapters.scripted.script import (
    Ending,
    Script,
    ScriptedCall,
    ScriptedTurn,
    Step,
    parse_script,
    read_script,
)
from turnlog.domain.errors import EngineError

END = '{"end": {"finish_reason": "stop"}}'
NESTED = '{"end": {"finish_reason": "stop", "tool_calls": [{"name": "a", "arguments": ' + '{"a": ' * 5000
EXAMPLES = sorted((Path(__file__).parents[3] / "docs" / "scripts").glob("*.json"))


def one_turn(*steps: str) -> str:
    return f'{{"turns": [{{"steps": [{", ".join(steps)}]}}]}}'


def test_every_key_of_the_format_is_read() -> None:
    written = """
    {"concurrency": 2, "context_window": 100, "load_ms": 50, "load_error": "no such file",
     "weight_bytes": 4000, "kv_bytes_per_token": 8, "turns": [
      {"match": "weather", "steps": [
        {"reasoning": "let me look"}, {"text": "Hel"}, {"sleep_ms": 20}, {"raise": "no"}, {"hang": true},
        {"end": {"finish_reason": "stop", "text": "Hello", "thinking": null, "prompt_tokens": 5,
                 "output_tokens": 2, "cached_tokens": 0, "reasoning_tokens": 0,
                 "tool_calls": [{"id": "call_a", "name": "add", "arguments": "{}", "status": "ok"}]}}]}]}
    """

    script = parse_script(written)

    ending = Ending(
        finish_reason="stop",
        text="Hello",
        thinking=None,
        prompt_tokens=5,
        output_tokens=2,
        cached_tokens=0,
        reasoning_tokens=0,
        tool_calls=(ScriptedCall(name="add", arguments="{}", id="call_a", status="ok"),),
    )
    steps = (
        Step(reasoning="let me look"),
        Step(text="Hel"),
        Step(sleep_ms=20),
        Step(raise_="no"),
        Step(hang=True),
        Step(end=ending),
    )
    assert script == Script(
        concurrency=2,
        context_window=100,
        load_ms=50,
        load_error="no such file",
        weight_bytes=4000,
        kv_bytes_per_token=8,
        turns=(ScriptedTurn(match="weather", steps=steps),),
    )


def test_concurrency_and_window_have_defaults() -> None:
    """And so has what concerns the load: at once, without failing, next to no memory."""
    script = parse_script('{"turns": []}')

    assert script == Script(
        turns=(),
        concurrency=64,
        context_window=None,
        load_ms=0,
        load_error=None,
        weight_bytes=0,
        kv_bytes_per_token=0,
    )


@pytest.mark.parametrize(
    ("written", "refusal"),
    [
        ("[]", "s.json: Expected `object`, got `array`"),
        ("{}", "s.json: Object missing required field `turns`"),
        ('{"turns": [', "s.json: Input data was truncated"),
        (one_turn(NESTED), "s.json: maximum recursion depth exceeded"),
        ('{"turns": [], "turn": 1}', "s.json: Object contains unknown field `turn`"),
        ('{"turns": [], "concurrency": 0}', "s.json: concurrency: Expected `int` >= 1"),
        ('{"turns": [], "context_window": "8"}', "s.json: context_window: Expected `int | null`, got `str`"),
        ('{"turns": [{}]}', "s.json: turns[0]: Object missing required field `steps`"),
        ('{"turns": [{"steps": [], "mach": ""}]}', "s.json: turns[0]: Object contains unknown field `mach`"),
        (one_turn('{"text": "a"}', '{"slep_ms": 1}'), "s.json: turns[0].steps[1]: Object contains unknown"),
        (one_turn("{}"), "s.json: turns[0].steps[0]: A step has exactly one of `text`, `reasoning`,"),
        (one_turn('{"text": "a", "hang": true}'), "s.json: turns[0].steps[0]: A step has exactly one of"),
        (one_turn('{"text": 1}'), "s.json: turns[0].steps[0].text: Expected `str`, got `int`"),
        (one_turn('{"text": null}'), "s.json: turns[0].steps[0].text: Expected `str`, got `null`"),
        (one_turn('{"sleep_ms": -1}'), "s.json: turns[0].steps[0].sleep_ms: Expected `float` >= 0.0"),
        (one_turn('{"hang": false}'), "s.json: turns[0].steps[0]: `hang` can only be true"),
        (one_turn('{"crash": false}'), "s.json: turns[0].steps[0]: `crash` can only be true"),
        (one_turn('{"end": {"finish_reason": "x"}}'), "s.json: turns[0].steps[0].end.finish_reason: Invalid"),
        (one_turn(END, END, END), "s.json: turns[0].steps[1]: Nothing can follow `end`"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(written: str, refusal: str) -> None:
    with pytest.raises(EngineError, match="^" + re.escape(refusal)):
        parse_script(written, "s.json")


def test_a_missing_file_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.json"

    with pytest.raises(EngineError, match=re.escape(f"{path}: the script cannot be read: No such file")):
        read_script(path)


def test_broken_json_in_a_file_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{'turns'}")

    with pytest.raises(EngineError, match=re.escape(f"{path}: JSON is malformed")):
        read_script(path)


def test_the_first_entry_that_fits_is_played() -> None:
    other, first, second, any_text = (
        ScriptedTurn(match=match, steps=()) for match in ("snow", "rain", "rainy", None)
    )
    script = Script(turns=(other, first, second, any_text))

    chosen = [script.turn_for(text) for text in ("a rainy day", "Rain?", "")]

    assert chosen == [first, any_text, any_text]


def test_the_fingerprint_is_of_what_is_said_not_of_how_it_is_written() -> None:
    script = parse_script('{"turns": [{"match": "a", "steps": [{"text": "b"}]}]}')
    respaced = parse_script('{ "turns":[{"steps":[{"text":"\\u0062"}],"match":"a"}],"concurrency":64 }')
    changed = parse_script('{"turns": [{"match": "a", "steps": [{"text": "c"}]}]}')
    slower = parse_script(
        '{"turns": [{"match": "a", "steps": [{"text": "b"}]}], "load_ms": 9, "weight_bytes": 9}'
    )

    assert script.fingerprint == respaced.fingerprint == slower.fingerprint != changed.fingerprint


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_documented_examples_fit_the_format(path: Path) -> None:
    assert read_script(path).turns


def test_there_are_documented_examples() -> None:
    assert {"trouble.json", "weather.json"} <= {path.name for path in EXAMPLES}

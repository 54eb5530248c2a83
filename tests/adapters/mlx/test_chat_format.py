"""What is known of a model's markers."""

from pathlib import Path
from typing import Any

import pytest

from turnlog.adapters.mlx.chat_format import ANSWER, THINKING, ChatFormat
from turnlog.adapters.mlx.model import load


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Any:
    return load(tiny_folder).tokenizer


@pytest.mark.parametrize(
    ("prompt", "begins_with"),
    [
        ("", ANSWER),
        ("Hi", ANSWER),
        ("<think>", THINKING),
        ("<|im_start|>assistant\n<think>\n", THINKING),
        ("<think></think>", ANSWER),
        ("<think>Hm.</think><think>", THINKING),
        ("<think>Hm.<|im_end|>\n<|im_start|>assistant\n", ANSWER),
    ],
)
def test_a_prompt_says_whether_the_model_thinks_first(tokenizer: Any, prompt: str, begins_with: str) -> None:
    """By its last message: a thought that an earlier one left open is over."""
    ids = tuple(tokenizer.encode(prompt, add_special_tokens=False))

    assert ChatFormat(tokenizer).begins_with(ids) == begins_with


def test_a_model_without_a_format_for_calls_gets_the_usual_one(tokenizer: Any) -> None:
    chat_format = ChatFormat(tokenizer)

    assert (chat_format.call_start, chat_format.call_end) == ("<tool_call>", "</tool_call>")
    assert [tokenizer.decode([id_]) for id_ in chat_format.default_call_ids] == [
        "<tool_call>",
        "</tool_call>",
    ]

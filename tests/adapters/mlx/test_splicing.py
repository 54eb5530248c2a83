"""Recorded answers stand in a prompt as the ids they were made of, where the template shows all of them."""

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mlx.test_prompt import READ, REPEATING, renderer_of, tokenizer_of
from tests.tiny_model import AGENT_TEMPLATE, OPENING_TEMPLATE
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.prompt import PromptRenderer
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.tokens import TokenIds

ASKED = [Message("user", "Say the.")]
CALL = ToolCall("call_1", "read", '{"path":"a"}')


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Any:
    return load(tiny_folder).tokenizer


@pytest.fixture(scope="module", params=[AGENT_TEMPLATE, OPENING_TEMPLATE], ids=["closed", "opening"])
def thinker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of a thinking model; one whose prompts begin the thinking, and one that does it by itself."""
    return tokenizer_of(tmp_path_factory.mktemp("thinker"), request.param)


def spelt(tokenizer: Any, text: str) -> TokenIds:
    """A text as one token a character, as no encoder would write it; markers are one token still."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return tuple(
        part
        for id_ in ids
        for part in (
            [id_]
            if id_ in tokenizer.added_tokens_decoder
            else [tokenizer.convert_tokens_to_ids(sign) for sign in tokenizer.convert_ids_to_tokens(id_)]
        )
    )


def made(renderer: PromptRenderer, tokenizer: Any, text: str) -> TokenIds:
    """What a model says that first thinks `Hm.`, of which the prompt may have made the beginning."""
    opened = tokenizer.decode(list(renderer.render(ASKED).ids)).endswith("<think>\n")
    return spelt(tokenizer, ("" if opened else "<think>\n") + "Hm.\n</think>\n\n" + text + "<|im_end|>")


def test_recorded_ids_stand_in_for_the_text_of_an_answer(tokenizer: Any) -> None:
    renderer = renderer_of(tokenizer)
    h, e, end = (tokenizer.convert_tokens_to_ids(token) for token in ("h", "e", "<|im_end|>"))

    # The model may say "he" in two tokens; its text alone would be encoded as one.
    messages = [*ASKED, Message("assistant", "he"), Message("user", "Why?")]
    prompt = renderer.render(messages, recorded={1: (h, e, end)})

    before = renderer.render(ASKED).ids
    assert prompt.ids[: len(before) + 3] == (*before, h, e, end)
    assert tokenizer.decode(list(prompt.ids)).endswith(
        "he<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_answer_cut_off_before_its_end_is_closed_by_the_template(tokenizer: Any) -> None:
    renderer = renderer_of(tokenizer)
    messages = [*ASKED, Message("assistant", "h"), Message("user", "Go on.")]
    cut_off = (tokenizer.convert_tokens_to_ids("h"),)

    assert renderer.render(messages, recorded={1: cut_off}) == renderer.render(messages)


def test_a_template_that_repeats_messages_gets_the_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, REPEATING)
    messages = [*ASKED, Message("assistant", "he"), Message("user", "Why?")]

    recorded = {1: spelt(tokenizer, "he<|im_end|>")}

    assert renderer_of(tokenizer).render(messages, recorded=recorded) == renderer_of(tokenizer).render(
        messages
    )


def test_calls_that_the_template_tells_elsewhere_are_not_taken_from_it(tmp_path: Path) -> None:
    """Some templates name the tool beside its output, and find the name in the message before."""
    naming = AGENT_TEMPLATE.replace(
        "'<|im_start|>user\\n<tool_response>",
        "(messages[loop.index0 - 1].tool_calls or [{'id': '?'}])[0].id + '<|im_start|>user\\n<tool_response>",
    )
    tokenizer = tokenizer_of(tmp_path, naming)
    messages = [
        *ASKED,
        Message("assistant", "", tool_calls=(CALL,)),
        Message("tool", "42", call_id="call_1"),
        Message("assistant", "the"),
        *ASKED,
    ]
    call = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    recorded = {1: spelt(tokenizer, call), 3: spelt(tokenizer, "the")}

    prompt = renderer_of(tokenizer).render(messages, recorded=recorded)

    assert "call_1<|im_start|>user\n<tool_response>" in tokenizer.decode(list(prompt.ids))
    assert prompt == renderer_of(tokenizer).render(messages, recorded={3: recorded[3]})
    assert prompt != renderer_of(tokenizer).render(messages)


def test_a_prompt_in_the_middle_of_a_tool_loop_extends_what_was_read(thinker: Any) -> None:
    """Thinking and calls included: what the model said it finds again, token by token."""
    renderer = renderer_of(thinker)
    read = renderer.render(ASKED, tools=[READ]).ids
    said = made(
        renderer, thinker, 'the\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    )
    messages = [
        *ASKED,
        Message("assistant", "the", reasoning="Hm.", tool_calls=(CALL,)),
        Message("tool", "42", call_id="call_1"),
    ]

    prompt = renderer.render(messages, tools=[READ], recorded={1: said})
    again = renderer.render([*messages, messages[1], messages[2]], tools=[READ], recorded={1: said, 3: said})

    assert prompt.ids[: len(read) + len(said)] == read + said
    assert again.ids[: len(prompt.ids) + len(said)] == prompt.ids + said
    assert thinker.decode(list(prompt.ids)) == thinker.decode(
        list(renderer.render(messages, tools=[READ]).ids)
    )


def test_a_thought_that_the_template_leaves_out_is_not_brought_back(thinker: Any) -> None:
    renderer = renderer_of(thinker)
    messages = [*ASKED, Message("assistant", "the", reasoning="Hm."), Message("user", "Why?")]

    recorded = {1: made(renderer, thinker, "the")}

    assert renderer.render(messages, recorded=recorded) == renderer.render(messages)


def test_an_answer_without_a_thought_is_put_in_beside_one_that_does_not_fit(thinker: Any) -> None:
    renderer = renderer_of(thinker)
    plain = spelt(thinker, "the<|im_end|>")
    messages = [
        *ASKED,
        Message("assistant", "the"),
        *ASKED,
        Message("assistant", "the", reasoning="Hm."),
        *ASKED,
    ]

    prompt = renderer.render(messages, recorded={1: plain, 3: made(renderer, thinker, "the")})

    assert prompt == renderer.render(messages, recorded={1: plain})
    assert prompt != renderer.render(messages)


@pytest.mark.parametrize("said", ["<think>\nHm.", "Hm."])
def test_a_thought_that_was_cut_off_is_told_by_the_template(thinker: Any, said: str) -> None:
    renderer = renderer_of(thinker)
    messages = [*ASKED, Message("assistant", "", reasoning="Hm."), Message("tool", "42", call_id="call_1")]

    assert renderer.render(messages, recorded={1: spelt(thinker, said)}) == renderer.render(messages)

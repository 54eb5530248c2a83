"""Every chat template takes instructions, tools, any order of messages and any past work (T2-04).

The templates are small ones in the style of every family whose calls `mlx_lm` can read, and of those that
refuse what they were not written for.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mlx.test_prompt import renderer_of
from tests.tiny_model import make_tiny_model
from turnlog.adapters.mlx.chat_format import ChatFormat
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.output_parser import OutputParser
from turnlog.adapters.mlx.toolparse import CallParser
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Image, Message, ToolCall
from turnlog.domain.ports import EngineCall
from turnlog.domain.tools import Tool

TEMPLATES = {
    path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("templates/*")
}
PARSERS = {
    "deepseek": "json_tools",
    "deepseek_v32": None,
    "function_gemma": "function_gemma",
    "gemma4": "gemma4",
    "glm47": "glm47",
    "kimi_k2": "kimi_k2",
    "kimi_k3": "kimi_k3",
    "laguna": "laguna",
    "lfm2": "pythonic",
    "longcat": "longcat",
    "minicpm5": "minicpm5",
    "minimax_m2": "minimax_m2",
    "mistral": "mistral",
    "muse_spark": "muse_spark",
    "qwen35": "qwen3_coder",
    "single_calls": "json_tools",
    "tools_only": "json_tools",
}
"""The families with calls of their own, and which parser of `mlx_lm` reads them."""

FIND = Tool("find", "function", "find", parameters={"type": "object", "properties": {"word": {}}})
SYSTEM = Message("system", "Instructions.")


def user(text: str) -> Message:
    return Message("user", text)


def said(text: str) -> Message:
    return Message("assistant", text)


def call(call_id: str, arguments: str, name: str = "find") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def calls(*calls: ToolCall) -> Message:
    return Message("assistant", "", tool_calls=calls)


def output(call_id: str, text: str, *, is_error: bool = False) -> Message:
    return Message("tool", text, call_id=call_id, is_error=is_error)


CALLED = [user("One."), calls(call("call_1", '{"word": "two"}')), output("call_1", "Three.")]
CONVERSATIONS = {
    "a question": [user("One.")],
    "instructions": [SYSTEM, user("One.")],
    "instructions alone": [SYSTEM],
    "instructions and an answer": [SYSTEM, user("One."), said("Two."), user("Three.")],
    "two questions": [user("One."), user("Two."), said("Three."), user("Four.")],
    "two answers": [SYSTEM, user("One."), said("Two."), said("Three."), user("Four.")],
    "an answer first": [said("One."), user("Two.")],
    "an answer first, after instructions": [SYSTEM, said("One."), user("Two.")],
    "an answer alone": [said("One.")],
    "an answer last": [user("One."), said("Two.")],
    "an empty answer": [user("One."), said(""), user("Two.")],
    "an empty answer last": [user("One."), said("")],
    "an empty question": [user(""), said("One."), user(" ")],
    "a call": CALLED,
    "a call, after instructions": [SYSTEM, *CALLED],
    "a call, an answer": [SYSTEM, *CALLED, said("Four."), user("Five.")],
    "a call, a question": [*CALLED, user("Four.")],
    "a call, instructions alone": [SYSTEM, *CALLED[1:]],
    "two calls": [
        SYSTEM,
        user("One."),
        calls(call("call_1", '{"word": "two"}'), call("call_2", '{"word": "three"}')),
        output("call_1", "Four."),
        output("call_2", "Five."),
    ],
    "calls one after the other": [
        *CALLED,
        calls(call("call_1", '{"word": "four"}')),
        output("call_1", "Five.", is_error=True),
    ],
    "a call of another tool": [
        user("One."),
        calls(call("c", '{"word": "two"}', "gone")),
        output("c", "Three."),
    ],
    "a call without arguments": [user("One."), calls(call("c", "")), output("c", "Two.")],
    "a call that went wrong": [user("One."), calls(call("c", '{"word": two')), output("c", "Three.")],
    "a call with a list": [user("One."), calls(call("c", '["two"]')), output("c", "Three.")],
    "a call with null": [user("One."), calls(call("c", "null")), output("c", "Two.")],
    "a call with an object inside": [
        user("One."),
        calls(call("c", '{"word": {"a": [null, "two"]}}')),
        output("c", "Three."),
    ],
    "a call with half a character": [
        user("One."),
        calls(call("c", '{"word": "two \\ud83d", "\\ude42": 1}')),
        output("c", "Three."),
    ],
    "an empty output": [user("One."), calls(call("c", '{"word": "two"}')), output("c", "")],
}
WORDS = ("instructions", "one", "two", "three", "four", "five")


def tokenizer_of(folder: Path, name: str) -> Any:
    """The tokenizer of a model whose chat template is that one."""
    made = make_tiny_model(folder, TEMPLATES.get(name, TEMPLATES["glm47"]))
    path = made / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config |= {"bos_token": "<|im_start|>"}
    if name == "laguna":
        config["tool_parser_type"] = "laguna"
    if name == "kimi_k3":
        config["tool_parser_type"] = "kimi_k3"
    if name == "deepseek_v32":
        config["chat_template_type"] = "deepseek_v32"
        del config["chat_template"]
    path.write_text(json.dumps(config))
    return load(made).tokenizer


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    names = {*TEMPLATES, *PARSERS}
    return {name: tokenizer_of(tmp_path_factory.mktemp(name), name) for name in names}


def rendered(tokenizer: Any, messages: list[Message], *tools: Tool) -> str:
    return str(tokenizer.decode(renderer_of(tokenizer).render(messages, tools=tools).ids))


@pytest.mark.parametrize("name", PARSERS)
def test_the_templates_are_of_the_families_that_mlx_lm_reads_calls_of(
    tokenizers: dict[str, Any], name: str
) -> None:
    parser = tokenizers[name].tool_parser

    assert (parser and parser.__module__.rpartition(".")[2]) == {"laguna": "glm47"}.get(name, PARSERS[name])


@pytest.mark.parametrize("tools", [(), (FIND,)], ids=["", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", sorted({*TEMPLATES, *PARSERS}))
def test_a_template_shows_all_of_any_conversation(
    tokenizers: dict[str, Any], name: str, conversation: str, tools: tuple[Tool, ...]
) -> None:
    """T2-04: nothing is refused, and nothing is left out without a sound."""
    messages = CONVERSATIONS[conversation]
    told = [f"{each.content} {[call.arguments for call in each.tool_calls]}".lower() for each in messages]
    expected = [word for word in WORDS if word in "".join(told)]

    text = rendered(tokenizers[name], messages, *tools)

    places = [text.lower().rfind(word) for word in expected]
    assert -1 not in places, text
    # Where only one call may be made at a time, its output comes before the second one.
    assert places[1:] == sorted(places[1:]) or conversation == "two calls", text
    assert not tools or '"word"' in text


def test_a_template_that_takes_all_of_it_is_used_as_it_is(tokenizers: dict[str, Any]) -> None:
    """Only what a template refuses is recast: neighbours stay apart, calls keep the model's own form."""
    text = rendered(tokenizers["kimi_k2"], [*CALLED, user("Four."), user("Five.")], FIND)

    assert text.endswith(
        "<|im_assistant|>assistant<|im_middle|><|tool_calls_section_begin|><|tool_call_begin|>call_1|find"
        '<|tool_call_argument_begin|>{"word": "two"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "<|im_system|>find<|im_middle|>## Return of call_1\nThree.<|im_end|>"
        "<|im_user|>user<|im_middle|>Four.<|im_end|><|im_user|>user<|im_middle|>Five.<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    )


def test_a_picture_of_a_past_turn_is_told_as_one_that_cannot_be_seen(tokenizers: dict[str, Any]) -> None:
    """T2-04: it is no text, and the conversation goes on."""
    seen = Message("user", "What is this?", images=(Image("image/png", b"1"),))

    text = rendered(tokenizers["vision"], [seen, said("A boat."), user("Sure?")])

    assert text.startswith("<|im_start|>user\nWhat is this?\n[an image that the model cannot see]<|im_end|>")


def test_instructions_begin_the_first_question_where_there_is_no_system_role(
    tokenizers: dict[str, Any],
) -> None:
    """T2-04: and neighbours of one role are one message where the roles must alternate."""
    messages = [SYSTEM, user("One."), user("Two."), said("Three."), said("Four."), user("Five.")]

    assert rendered(tokenizers["gemma2"], messages) == (
        "<|im_start|><start_of_turn>user\nInstructions.\n\nOne.\n\nTwo.<end_of_turn>\n"
        "<start_of_turn>model\nThree.\n\nFour.<end_of_turn>\n"
        "<start_of_turn>user\nFive.<end_of_turn>\n"
        "<start_of_turn>model\n"
    )


def test_a_call_keeps_the_models_own_form_where_only_its_id_is_refused(tokenizers: dict[str, Any]) -> None:
    """T2-04: Mistral's templates take call ids of nine characters."""
    text = rendered(tokenizers["mistral"], [SYSTEM, *CALLED])

    call_id = text.partition('"id": "')[2][:9]
    assert text == (
        "<|im_start|>[INST] Instructions.\n\nOne.[/INST]"
        f'[TOOL_CALLS] [{{"name": "find", "arguments": {{"word": "two"}}, "id": "{call_id}"}}]<|im_end|>'
        f'[TOOL_RESULTS] {{"content": "Three.", "call_id": "{call_id}"}}[/TOOL_RESULTS]'
    )


def test_a_longer_conversation_begins_with_the_shorter_one(tokenizers: dict[str, Any]) -> None:
    """What was read stays read: what a turn adds does not change the form of what was before it."""
    said_so_far = [SYSTEM, user("One."), said("Two."), user("Three.")]

    for name in ("gemma2", "mixtral", "mistral", "tools_only"):
        shorter, longer = (
            rendered(tokenizers[name], messages)
            for messages in (said_so_far, [*said_so_far, said("Four."), user("Five."), user("Six.")])
        )
        assert longer.startswith(shorter.removesuffix("<start_of_turn>model\n")), name


REFUSING = (
    "{% for message in messages %}"
    "{% if 'forbidden' in message.content %}{{ raise_exception('no such word') }}{% endif %}"
    "{{ message.content }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([user("forbidden")], "user message 1 of 1"),
        ([SYSTEM, user("One."), said("forbidden"), user("Two.")], "assistant message 1 of 1"),
        ([user("One."), said("Two."), user("forbidden"), user("Three.")], "user message 2 of 3"),
        ([*CALLED[:2], output("call_1", "forbidden"), user("Three.")], "function_call_output 1 of 1"),
        ([Message("system", "forbidden"), user("One.")], "the instructions"),
    ],
)
def test_what_a_template_refuses_in_any_form_is_named(
    tmp_path: Path, messages: list[Message], place: str
) -> None:
    """T2-04: the sentence says which message it is, and what to change."""
    tokenizer = load(make_tiny_model(tmp_path, REFUSING)).tokenizer

    with pytest.raises(InvalidRequestError) as refusal:
        rendered(tokenizer, messages)

    assert (refusal.value.message, refusal.value.param) == (
        "The model's chat template rejected this conversation: no such word. "
        f"It stops at {place}: change that or leave it out.",
        "input",
    )


def test_a_template_that_refuses_everything_is_no_fault_of_the_request(tmp_path: Path) -> None:
    tokenizer = load(make_tiny_model(tmp_path, "{{ raise_exception('never') }}")).tokenizer

    with pytest.raises(
        InvalidRequestError, match=r"never\. It refuses any other, too: the model needs another"
    ):
        rendered(tokenizer, [user("One.")])


@pytest.mark.parametrize("name", PARSERS)
def test_a_call_in_the_default_form_is_read_whatever_the_models_own_is(
    tokenizers: dict[str, Any], name: str
) -> None:
    """A conversation that the template refused with its tools was given them in the default form."""
    parse = partial(CallParser(tokenizers[name]).read, tools=[FIND])
    parser = OutputParser(ChatFormat(tokenizers[name]).markers, parse=parse)

    parser.receive('So.\n<tool_call>\n{"name": "find", "arguments": {"word": "two"}}\n</tool_call>')
    parser.end()

    assert (parser.text, parser.calls) == ("So.", (EngineCall("find", '{"word":"two"}'),))

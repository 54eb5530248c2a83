"""What a chat template is given, and what is done for a model whose template knows nothing of tools.

Every chat model can be given tools. If its own template shows them and `mlx_lm` can read the calls it asks
for, the template is used. Else the tools go into the system message in the style of Hermes and Qwen, calls
are text of the assistant and outputs are messages of the user.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from turnlog.adapters.mlx.dialect import DEFAULT_CALL
from turnlog.adapters.mlx.toolparse import functions
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.tools import Json, Tool

_ERROR_MARK = "[tool error] "

_TOOLS_BELOW = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_HOW_TO_CALL = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> \
XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""


class ChatTemplate:
    """The chat template of one tokenizer, a `TokenizerWrapper` of `mlx_lm`. Any thread."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.takes_tools: bool = tokenizer.has_tool_calling and self._shows_tools()

    def render(
        self,
        conversation: Sequence[Json],
        tools: Sequence[Json] = (),
        *,
        thinking: bool | None = None,
        asks: bool = True,
    ) -> str:
        """The text of a conversation, at its end the beginning of an answer if the template `asks` for one.

        Args:
            conversation: as `conversation_of` makes it.
            tools: as `functions` makes them.

        Raises:
            InvalidRequestError: the template refuses the conversation.
        """
        if not self.takes_tools:
            conversation, tools = _spelt_out(conversation, tools), ()
        return self._applied(conversation, tools, thinking=thinking, asks=asks)

    def _applied(
        self, conversation: Sequence[Json], tools: Sequence[Json], *, thinking: bool | None, asks: bool
    ) -> str:
        options: Json = {} if thinking is None else {"enable_thinking": thinking}
        if tools:
            options["tools"] = list(tools)
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(conversation), tokenize=False, add_generation_prompt=asks, **options
                )
            )
        except Exception as error:
            # A template is a program run on what the client sent; whatever it raises, that did not suit it.
            raise InvalidRequestError(
                f"The model's chat template refuses this conversation: {error}", param="input"
            ) from error

    def _shows_tools(self) -> bool:
        name = "turnlog_probe"
        question, tools = {"role": "user", "content": "Hi"}, functions([Tool(name, "function", name)])
        try:
            return name in self._applied([question], tools, thinking=None, asks=True)
        except InvalidRequestError:
            return False


def conversation_of(messages: Sequence[Message]) -> list[Json]:
    """Messages as chat templates know them: those of Chat Completions, but arguments are objects."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_message(message, names) for message in messages]


def _message(message: Message, names: dict[str, str]) -> Json:
    found: Json = {"role": message.role, "content": message.content}
    if message.is_error:
        found["content"] = _ERROR_MARK + message.content
    if message.reasoning:
        # Templates call it the one or the other.
        found["reasoning"] = found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.call_id is not None:
        found["tool_call_id"] = message.call_id
        if message.call_id in names:
            found["name"] = names[message.call_id]
    return found


def _tool_call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": _arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(text: str) -> Any:
    """As an object where they are one: most templates turn it into JSON themselves."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict) else text


def _spelt_out(conversation: Sequence[Json], tools: Sequence[Json]) -> list[Json]:
    """The same conversation without tools, calls and tool messages: all of them are told as text."""
    told = list(_outputs_joined([_without_calls(message) for message in conversation]))
    if not tools:
        return told
    preamble = _TOOLS_BELOW + "\n".join(_json(tool) for tool in tools) + _HOW_TO_CALL
    if told and told[0]["role"] == "system":
        first, *rest = told
        return [{**first, "content": f"{first['content']}\n\n{preamble}".lstrip()}, *rest]
    return [{"role": "system", "content": preamble}, *told]


def _without_calls(message: Json) -> Json:
    calls = message.get("tool_calls")
    if not calls:
        return message
    start, end = DEFAULT_CALL
    texts = [f"{start}\n{_json(call['function'])}\n{end}" for call in calls]
    content = "\n".join([message["content"], *texts] if message["content"] else texts)
    return {**{key: value for key, value in message.items() if key != "tool_calls"}, "content": content}


def _outputs_joined(conversation: Sequence[Json]) -> Iterator[Json]:
    """Neighbouring tool messages as one of the user: many templates want the roles to alternate."""
    for is_output, run in groupby(conversation, key=lambda message: message["role"] == "tool"):
        if is_output:
            texts = [f"<tool_response>\n{message['content']}\n</tool_response>" for message in run]
            yield {"role": "user", "content": "\n".join(texts)}
        else:
            yield from run


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

"""Conversations recast for chat templates that do not take them as they are. Pure functions.

A conversation is a list of messages as `conversation_of` makes them. Nothing that a message says is lost: it
moves into another message or is written another way.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from turnlog.adapters.mlx.chat_format import DEFAULT_CALL
from turnlog.domain.tools import Json

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

_SHORT_ID_CHARACTERS = 9


def spelt_out(conversation: Sequence[Json], tools: Sequence[Json]) -> list[Json]:
    """Tools, calls and outputs as text, in the style of Hermes and Qwen: for templates without them."""
    texts = list(_outputs_as_users([_calls_as_text(message) for message in conversation]))
    if not tools:
        return texts
    preamble = _TOOLS_BELOW + "\n".join(_json(tool) for tool in tools) + _HOW_TO_CALL
    if texts and texts[0]["role"] == "system":
        first, *rest = texts
        return [{**first, "content": f"{first['content']}\n\n{preamble}".lstrip()}, *rest]
    return [{"role": "system", "content": preamble}, *texts]


def without_system(conversation: Sequence[Json]) -> list[Json]:
    """The system message as the beginning of the user's first one: for templates without that role."""
    if not conversation or conversation[0]["role"] != "system":
        return list(conversation)
    system, *rest = conversation
    as_user = {**system, "role": "user"}
    if rest and rest[0]["role"] == "user":
        return [_joined([as_user, rest[0]]), *rest[1:]]
    return [as_user, *rest]


def alternating(conversation: Sequence[Json]) -> list[Json]:
    """Neighbours of one role as one message, and the user first: for templates that insist on that.

    An answer that says nothing is left out: some of them insist on that, too.
    """
    found: list[Json] = []
    for message in conversation:
        if message["role"] == "assistant" and not (message["content"].strip() or message.get("tool_calls")):
            continue
        if found and message["role"] == found[-1]["role"] != "tool":
            found[-1] = _joined([found[-1], message])
        else:
            found.append(message)
    first = next((place for place, message in enumerate(found) if message["role"] != "system"), len(found))
    if found[first:] and found[first]["role"] == "assistant":
        found.insert(first, {"role": "user", "content": ""})
    return found


def plain(conversation: Sequence[Json], tools: Sequence[Json]) -> list[Json]:
    """Texts of user and assistant in turns, the user first and last: what every template takes."""
    found = alternating(without_system(spelt_out(conversation, tools)))
    if not found or found[-1]["role"] == "assistant":
        found.append({"role": "user", "content": ""})
    return found


def one_call_each(conversation: Sequence[Json]) -> list[Json]:
    """Calls that were made together as one after the other, each with its output behind it."""
    found: list[Json] = []
    place = 0
    while place < len(conversation):
        message = conversation[place]
        place += 1
        calls = message.get("tool_calls", [])
        outputs = conversation[place : place + len(calls)]
        if len(calls) < 2 or [output["role"] for output in outputs] != ["tool"] * len(calls):
            found.append(message)
            continue
        for call, output in zip(calls, outputs, strict=True):
            found += [{**message, "tool_calls": [call]}, output]
            message = {"role": "assistant", "content": ""}
        place += len(calls)
    return found


def with_short_ids(conversation: Sequence[Json]) -> list[Json]:
    """Call ids of nine letters and digits, as Mistral's templates demand."""
    return [_with_short_ids(message) for message in conversation]


def with_objects_only(conversation: Sequence[Json]) -> list[Json]:
    """Arguments that are no JSON object as the one entry of an object."""
    return _with_arguments(conversation, lambda each: each if isinstance(each, dict) else {"arguments": each})


def with_texts_only(conversation: Sequence[Json]) -> list[Json]:
    """Arguments as JSON text: for templates that would join an object with a text."""
    return _with_arguments(conversation, lambda each: each if isinstance(each, str) else _json(each))


def in_parts(conversation: Sequence[Json]) -> list[Json]:
    """Contents as lists of parts: for templates of models that read more than text."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]} for message in conversation
    ]


def _calls_as_text(message: Json) -> Json:
    calls = message.get("tool_calls")
    if not calls:
        return message
    start, end = DEFAULT_CALL
    texts = [f"{start}\n{_json(call['function'])}\n{end}" for call in calls]
    content = "\n".join([message["content"], *texts] if message["content"] else texts)
    return {**{key: value for key, value in message.items() if key != "tool_calls"}, "content": content}


def _outputs_as_users(conversation: Sequence[Json]) -> Iterator[Json]:
    """Neighbouring tool messages as one of the user: many templates want the roles to alternate."""
    for is_output, run in groupby(conversation, key=lambda message: message["role"] == "tool"):
        if is_output:
            texts = [f"<tool_response>\n{message['content']}\n</tool_response>" for message in run]
            yield {"role": "user", "content": "\n".join(texts)}
        else:
            yield from run


def _joined(messages: Sequence[Json]) -> Json:
    """Neighbours as one message; the calls are those of the last, as outputs would follow any others."""
    found = dict(messages[-1])
    for key in ("content", "reasoning", "reasoning_content"):
        texts = [message[key] for message in messages if message.get(key)]
        if texts or key in found:
            found[key] = "\n\n".join(texts)
    return found


def _with_arguments(conversation: Sequence[Json], change: Callable[[Any], Any]) -> list[Json]:
    def changed(call: Json) -> Json:
        function = call["function"]
        return {**call, "function": {**function, "arguments": change(function["arguments"])}}

    return [
        {**message, "tool_calls": [changed(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in conversation
    ]


def _with_short_ids(message: Json) -> Json:
    found = dict(message)
    if "tool_calls" in found:
        found["tool_calls"] = [{**call, "id": _short(call["id"])} for call in found["tool_calls"]]
    if "tool_call_id" in found:
        found["tool_call_id"] = _short(found["tool_call_id"])
    return found


def _short(call_id: str) -> str:
    if len(call_id) == _SHORT_ID_CHARACTERS and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:_SHORT_ID_CHARACTERS]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

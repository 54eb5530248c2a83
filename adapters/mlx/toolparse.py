"""Calls read out of what a model said, in the format it was trained on. Nothing a model says raises here.

Each format is read by its parser in `mlx_lm`. Those parsers were written for the calls of well-behaved
models: on text made to hurt them some take time that grows with its square and more (reliability, finding
10). So what they are given is capped, and whatever they raise means that the text is no call.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from turnlog.adapters.mlx.chat_format import DEFAULT_CALL, ChatFormat
from turnlog.domain.ports import EngineCall
from turnlog.domain.tools import Json, Tool

INVALID = "invalid_json"
TOO_LONG = "too_long"

MOST_CHARACTERS = 8_000
"""What a parser gets. Measured on the worst texts found, 8,000 characters take `gemma4` 0.9 s, `kimi_k3`
0.25 s and any other less than 0.1 s."""

MOST_CHARACTERS_OF_QUICK_PARSERS = 64_000
"""What these get, so that a call may carry a whole file: at worst 0.5 s, `qwen3_coder`."""

_QUICK = ("json_tools", "kimi_k2", "minicpm5", "minimax_m2", "mistral", "pythonic", "qwen3_coder")
# These make a call of any text, its first word the name: only a tool that was offered makes it one. Of other
# models, a call of an unknown tool is for the client to answer.
_GUESSING = ("glm47", "laguna", "longcat")

_ParseCall = Callable[[str, list[Json]], Any]


class CallParser:
    """Reads the calls of one model, by the parser its `TokenizerWrapper` has, else as JSON."""

    def __init__(self, tokenizer: Any) -> None:
        self._parse: _ParseCall = tokenizer.tool_parser or _json
        name = "json_tools" if tokenizer.tool_parser is None else self._parse.__module__.rpartition(".")[2]
        self._guesses = name in _GUESSING
        self._most = MOST_CHARACTERS_OF_QUICK_PARSERS if name in _QUICK else MOST_CHARACTERS

    def read(self, text: str, tools: Sequence[Tool]) -> tuple[EngineCall, ...]:
        """The calls in the text between two markers: all of them, or one whose status says what is wrong."""
        if len(text) > self._most:
            return (EngineCall("", text, status=TOO_LONG),)
        # As JSON where the model was told to call so, because its template refused the conversation.
        return self._own(text, tools) or _in_json(text) or (EngineCall("", text, status=INVALID),)

    def _own(self, text: str, tools: Sequence[Tool]) -> tuple[EngineCall, ...]:
        """The calls in the format of the model; none if it is another."""
        try:
            parsed = self._parse(text, functions(tools))
            calls = tuple(_call(each) for each in (parsed if isinstance(parsed, list) else [parsed]))
        except Exception:
            # ValueError, but also RecursionError, MemoryError and whatever else a parser trips over.
            return ()
        if self._guesses and not _known(tools).issuperset(call.name for call in calls):
            return ()
        return calls


def _in_json(text: str) -> tuple[EngineCall, ...]:
    try:
        return tuple(_call(value) for value in _values(text, {*DEFAULT_CALL}))
    except Exception:
        return ()


def read_forced(text: str, chat_format: ChatFormat) -> tuple[EngineCall, ...]:
    """The calls of an answer held to a `CallConstraint`; one cut off by the limit has another status."""
    calls: list[EngineCall] = []
    try:
        for value in _values(text, {*DEFAULT_CALL, chat_format.call_start, chat_format.call_end} - {""}):
            calls += [_call(each) for each in (value if isinstance(value, list) else [value])]
    except Exception:
        return (*calls, EngineCall("", text, status=INVALID))
    return tuple(calls) or (EngineCall("", text, status=INVALID),)


def functions(tools: Sequence[Tool]) -> list[Json]:
    """Tools as chat templates and parsers know them: the function objects of Chat Completions."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def _known(tools: Sequence[Tool]) -> set[str]:
    return {name for tool in tools for name in (tool.name, tool.member)}


def _json(text: str, _: list[Json]) -> Any:
    return json.loads(text)


def _values(text: str, markers: set[str]) -> Iterator[Any]:
    """The JSON values in a text that has nothing else but markers and white space."""
    decoder = json.JSONDecoder()
    text = text.strip()
    while text:
        marker = next((marker for marker in markers if text.startswith(marker)), None)
        if marker is not None:
            text = text[len(marker) :].lstrip()
            continue
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:].lstrip()


def _call(parsed: Any) -> EngineCall:
    """One call; raises if it is none."""
    name = parsed["name"]
    arguments = parsed.get("arguments", parsed.get("parameters", {}))
    if isinstance(arguments, str):
        # Some models write the object as a text.
        arguments = json.loads(arguments)
    call_id = parsed.get("id")
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise TypeError("a call has a name and an object of arguments")
    name.encode()
    return EngineCall(name, _compact(arguments), call_id if isinstance(call_id, str) else None)


def _compact(arguments: Json) -> str:
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair, written as an escape: it can stay one, but cannot be sent as itself.
        return json.dumps(arguments, separators=(",", ":"), allow_nan=False)
    return text

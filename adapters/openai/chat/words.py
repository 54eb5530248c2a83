"""Refusals in the words of Chat Completions: the rules are those of the Responses API."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from turnlog.domain.errors import ResponsesError

_PARAMS: Final = {
    "input": "messages",
    "max_output_tokens": "max_completion_tokens",
    "text": "response_format",
    "text.format": "response_format",
}
_WORDS: Final = {
    "function_call_output": "tool message",
    "function_call": "tool call",
    "call_id": "tool_call_id",
    "max_output_tokens": "max_completion_tokens",
    "text.format.schema": "response_format.json_schema.schema",
}
_ANY_WORD: Final = re.compile(rf"\b({'|'.join(map(re.escape, _WORDS))})\b")


@contextmanager
def in_chat_words() -> Iterator[None]:
    """What is refused in the block names the fields that a chat's body has."""
    try:
        yield
    except ResponsesError as error:
        error.param = _PARAMS.get(error.param or "", error.param)
        if error.param not in _WORDS:  # The field `function_call` was sent by this name.
            error.message = _ANY_WORD.sub(lambda found: _WORDS[found[0]], error.message)
        raise

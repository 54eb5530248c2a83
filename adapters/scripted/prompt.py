"""Words as tokens: how the scripted engine renders a conversation.

An assistant message begins with the same marker that asks for an answer, so that a prompt and its
answer are the beginning of the next prompt, as with a real chat template.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final
from zlib import crc32

from turnlog.domain.messages import Message, Role
from turnlog.domain.ports import Prompt
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool

# Words take 31 bits, so that no word a user types can be a marker.
_MARKERS: Final[dict[Role, int]] = {
    "system": 2**31,
    "user": 2**31 + 1,
    "assistant": 2**31 + 2,
    "tool": 2**31 + 3,
}

# One by one, so that a long text does not hold the interpreter for long.
_words = re.compile(r"\S+").finditer

TOKENIZER_FINGERPRINT: Final = sha256(b"whitespace-split words, crc32, 31 bits").hexdigest()


class ScriptedPrompt(Prompt, frozen=True):
    """A prompt, and the last user or tool text in it: that is what the entries of a script match."""

    last_text: str = ""


def word_ids(text: str) -> TokenIds:
    """One id for each word of `text`."""
    return tuple(crc32(word[0].encode()) & 0x7FFFFFFF for word in _words(text))


def render(
    messages: Sequence[Message], recorded: Mapping[int, TokenIds], tools: Sequence[Tool] = ()
) -> ScriptedPrompt:
    """The tools' names, for each message its role and its words, or the ids `recorded` for it, and then the
    turn of the model. An error is marked as such (R-168).
    """
    ids = [id_ for tool in tools for id_ in word_ids(tool.name)]
    last_text = ""
    for index, message in enumerate(messages):
        ids.append(_MARKERS[message.role])
        content = f"[tool error] {message.content}" if message.is_error else message.content
        ids.extend(recorded[index] if index in recorded else word_ids(content))
        if message.role in ("user", "tool"):
            last_text = message.content
    ids.append(_MARKERS["assistant"])
    return ScriptedPrompt(tuple(ids), last_text=last_text)

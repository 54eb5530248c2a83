"""Escaping of special tokens: those typed by clients or models stay plain text through a chat template.

Before a template sees a conversation, each special token in its texts is replaced by an escape: a random
word of letters and digits, which survives trimming, escaping and JSON and triggers nothing in a template.
Special tokens in the rendered text are then the template's own.

Not caught: a special token that appears only where a template joins a text with its own, such as `<` and
`>` around the name of a schema's key.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

_MOST_ESCAPES = 1_000
"""With more in one text, all between the first and the last of them is escaped as one word."""

Spans = Callable[[str], list[tuple[int, int]]]
"""The spans of the special tokens in a text, in order, as the tokenizer reads it."""


class TokenEscape:
    """The escapes of one conversation. A text without special tokens stays as it is."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._nonce = secrets.token_hex(8)
        self._pattern = re.compile(f"z{self._nonce}x(\\d+)z")
        self._escaped_texts: list[str] = []

    def escaped(self, value: Any) -> Any:
        """`value`, made of lists, dicts and strings, with every string in it escaped, keys too."""
        match value:
            case str():
                return "".join(self._pieces(value))
            case list():
                return [self.escaped(each) for each in value]
            case dict():
                return {self.escaped(key): self.escaped(each) for key, each in value.items()}
            case _:
                return value

    def contains_escaped(self, text: str) -> bool:
        """Whether a rendered text contains an escape."""
        return bool(self._escaped_texts) and self._pattern.search(text) is not None

    def restored(self, text: str) -> str:
        """A rendered text with every escape replaced by its special token."""
        return self._pattern.sub(lambda found: self._escaped_texts[int(found[1])], text)

    def _pieces(self, text: str) -> Iterator[str]:
        # Some vocabularies have added tokens for runs of white space; those are harmless.
        spans = [(start, end) for start, end in self._spans(text) if text[start:end].strip()]
        if len(spans) > _MOST_ESCAPES:
            spans = [(spans[0][0], spans[-1][1])]
        last = 0
        for start, end in spans:
            yield text[last:start]
            yield f"z{self._nonce}x{len(self._escaped_texts)}z"
            self._escaped_texts.append(text[start:end])
            last = end
        yield text[last:]

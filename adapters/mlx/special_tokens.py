"""Control tokens typed by clients or models stay text, whatever a chat template does with them.

Before a template sees a conversation, each control token written in any of its texts is put under a escape:
a random word of letters and digits, which survives trimming, escaping and JSON, and by which a template can
take no wrong turn. Control tokens in what is rendered are then the template's own.

What is not noticed is a control token that nobody wrote: one that comes about only where a template joins
a text with its own, such as `<` and `>` around the name of a schema's key.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

Spans = Callable[[str], list[tuple[int, int]]]
"""Where control tokens stand in a text, in order, as the tokenizer reads it."""


class TokenEscape:
    """What is hidden in one conversation. A text without control tokens is left as it is."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._nonce = secrets.token_hex(8)
        self._pattern = re.compile(f"z{self._nonce}x(\\d+)z")
        self._hidden: list[str] = []

    def over(self, value: Any) -> Any:
        """`value`, of lists, dicts and strings, with every string in it veiled, keys too."""
        match value:
            case str():
                return self._escaped(value)
            case list():
                return [self.over(each) for each in value]
            case dict():
                return {self.over(key): self.over(each) for key, each in value.items()}
            case _:
                return value

    def covers(self, text: str) -> bool:
        """Whether something is hidden in a rendered text."""
        return bool(self._hidden) and self._pattern.search(text) is not None

    def lifted(self, text: str) -> str:
        """A rendered text with what was hidden in it."""
        return self._pattern.sub(lambda found: self._hidden[int(found[1])], text)

    def _escaped(self, text: str) -> str:
        return "".join(self._pieces(text))

    def _pieces(self, text: str) -> Iterator[str]:
        last = 0
        for start, end in self._spans(text):
            # Some vocabularies have tokens for runs of white space; those control nothing.
            if text[start:end].strip():
                yield text[last:start]
                yield f"z{self._nonce}x{len(self._hidden)}z"
                self._hidden.append(text[start:end])
                last = end
        yield text[last:]

"""Where a tokenizer would find special tokens in a text, without encoding it: that is quick, however long.

`tokenizers` looks for its added tokens first and encodes what lies between them. Most tokenizers look for
them in the text as it is; of the others only encoding tells.
"""

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from turnlog.domain.tools import Json

FORMS: Final = ("NFC", "NFD", "NFKC", "NFKD")
"""The normalizers of `tokenizers` that are Unicode's normal forms."""


_find_visible = re.compile(r"\S").search


class SpecialSpans:
    """Finds the added tokens of one tokenizer.

    Args:
        definition: the tokenizer as JSON, in the form of `tokenizers`.
    """

    def __init__(self, definition: Json) -> None:
        tokens: list[Json] = definition["added_tokens"]
        steps = steps_of(definition.get("normalizer"))
        self._strips = {token["content"]: (token["lstrip"], token["rstrip"]) for token in tokens}
        self._widens = any(map(any, self._strips.values()))
        self._find = re.compile(_pattern(self._strips) or "(?!)").finditer
        self._forms = [step["type"] for step in steps if step["type"] in FORMS]
        has_blank_ones = any(not token.strip() for token in self._strips)
        self._tells = (
            not any(token["single_word"] for token in tokens)
            and not (self._widens and has_blank_ones)
            and all(
                step["type"] in ("Prepend", *FORMS)
                or (puts_blanks_as_words(step) and not any(" " in token for token in self._strips))
                for step in steps
            )
        )

    def find(self, text: str) -> list[tuple[int, int]] | None:
        """The spans of the added tokens in a text, in order; None if only encoding it tells."""
        if not self._tells:
            return None
        spans = [match.span() for match in self._find(text)]
        if self._forms and not text.isascii():
            normal = text
            for form in self._forms:
                normal = unicodedata.normalize(form, normal)
            if sum(1 for _ in self._find(normal)) != len(spans):
                return None
        return self._widened(text, spans) if self._widens else spans

    def _widened(self, text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The spans with the white space that their tokens take in."""
        found: list[tuple[int, int]] = []
        for start, end in spans:
            strips_left, strips_right = self._strips[text[start:end]]
            before = text[found[-1][1] if found else 0 : start]
            blanks_before = len(before) - len(before.rstrip()) if strips_left else 0
            behind = _find_visible(text, end) if strips_right else None
            stop = (behind.start() if behind else len(text)) if strips_right else end
            found.append((start - blanks_before, stop))
        return found


def steps_of(step: Json | None) -> list[Json]:
    """What a normalizer or a pre-tokenizer does, one after the other."""
    if step is None:
        return []
    inner = step.get("normalizers") or step.get("pretokenizers") or []
    return [found for each in inner for found in steps_of(each)] if step["type"] == "Sequence" else [step]


def puts_blanks_as_words(step: Json) -> bool:
    """Whether a normalizer writes blanks as SentencePiece does."""
    return bool(step["type"] == "Replace" and step["pattern"] == {"String": " "} and step["content"] == "▁")


def _pattern(words: Iterable[str]) -> str:
    """A regular expression for the longest of the words, which looks at each character once."""
    words = sorted(words)
    ends = "" in words
    branches = [
        re.escape(first) + _pattern(word[1:] for word in same)
        for first, same in groupby(filter(None, words), key=lambda word: word[0])
    ]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if ends else ''}"

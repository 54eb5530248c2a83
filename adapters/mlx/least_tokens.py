"""How few tokens a text can have, from its length alone: what cannot fit is refused without being encoded.

A token of m characters is shared among them, an mth each. So a text has at least as many tokens as its
characters add up to if each counts 1/n, n being the length of the longest token that has such a character.
Digits, blanks and letters are told apart: a vocabulary may have eighty blanks in one token, but rarely two
digits.
"""

import json
import unicodedata
from typing import Any

from msgspec import Struct

from turnlog.adapters.mlx.special_spans import FORMS, puts_blanks_as_words, steps_of
from turnlog.adapters.mlx.tokenbytes import spelt_bytes
from turnlog.domain.tools import Json

_CONTINUING = frozenset(range(0x80, 0xC0))
_KINDS = [
    frozenset(b"0123456789"),
    frozenset(b" \t\n\r"),
    frozenset(b"abcdefghijklmnopqrstuvwxyz"),
    frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    frozenset(range(0xC0, 0x100)),  # of characters beyond ASCII
]
"""Bytes that begin a character, by its kind."""

_KINDS.append(frozenset(range(0x100)).difference(_CONTINUING, *_KINDS))


class _Kind(Struct, frozen=True):
    """A kind of characters: the bytes that begin no character of it, and the length of the longest token."""

    others: bytes
    longest: int

    def count(self, text: bytes) -> int:
        return len(text.translate(None, self.others))


class LeastTokens:
    """Bounds the tokens of texts from below, for one tokenizer.

    Args:
        definition: the tokenizer as JSON, in the form of `tokenizers`.
    """

    def __init__(self, definition: Json) -> None:
        steps = steps_of(definition.get("normalizer"))
        self._forms = [step["type"] for step in steps if step["type"] in FORMS]
        self._kinds: list[_Kind] = []
        splits = steps_of(definition.get("pre_tokenizer"))
        if all(map(_keeps_length, steps)) and all(map(_drops_nothing, splits)):
            self._kinds = _kinds(definition)

    def of(self, text: str) -> int:
        """A number of tokens that the text has for certain; 0 if nothing is known of this tokenizer."""
        if self._kinds and not text.isascii():
            for form in self._forms:
                text = unicodedata.normalize(form, text)
        written = text.encode()
        return int(sum(kind.count(written) / kind.longest for kind in self._kinds))


def _keeps_length(step: Json) -> bool:
    """Whether a normalizer makes a text no shorter, Unicode's forms aside."""
    return step["type"] in ("Prepend", *FORMS) or puts_blanks_as_words(step)


def _drops_nothing(step: Json) -> bool:
    """Whether every character still is in a word after a text was split."""
    if step["type"] in ("Split", "Punctuation"):
        return bool(step["behavior"] != "Removed")
    return step["type"] in ("ByteLevel", "Digits", "Metaspace")


def _kinds(definition: Json) -> list[_Kind]:
    """The kinds as the vocabulary has them; none if a token may stand for any text."""
    model: Any = definition["model"]
    by_byte = '"ByteLevel"' in json.dumps(definition.get("pre_tokenizer"))
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    if model["type"] not in ("BPE", "Unigram") or affixes or not (by_byte or model.get("byte_fallback")):
        return []
    # Added tokens are not looked for here: a text is asked about without them.
    added = {token["content"] for token in definition["added_tokens"]}
    words = {word if isinstance(word, str) else word[0] for word in model["vocab"]} - added
    tokens = [spelt_bytes(word) if by_byte else _fallback_bytes(word) for word in words]
    lengths = sorted(
        ((len(token.translate(None, bytes(_CONTINUING))), token) for token in tokens), reverse=True
    )
    # A byte that is no token may be left out of a prompt without a trace.
    known = {token[0] for token in tokens if len(token) == 1}
    if not by_byte and len(known) < 0x100:
        return []  # what cannot be written is one unknown token, however long
    found = []
    for kind in _KINDS:
        others = bytes(frozenset(range(0x100)) - (kind & known))
        longest = next((length for length, token in lengths if token.translate(None, others)), 1)
        found.append(_Kind(others, longest))
    return found


def _fallback_bytes(word: str) -> bytes:
    if len(word) == len("<0x00>") and word.startswith("<0x"):
        return bytes([int(word[3:5], 16)])
    return word.replace("▁", " ").encode()

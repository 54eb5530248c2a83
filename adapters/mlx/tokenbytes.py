"""The bytes of each token: some tokens are a part of a character, which is no text."""

import json
from codecs import getincrementaldecoder
from collections.abc import Iterable
from typing import Any

MOST_TOKENS_OF_A_CHARACTER = 4
"""In UTF-8 it has so many bytes at most, and a token has one at least."""


class TokenBytes:
    """Of one tokenizer, a `TokenizerWrapper` of `mlx_lm`. One thread."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        decoder = json.dumps(json.loads(tokenizer.backend_tokenizer.to_str()).get("decoder"))
        self._spelt_by_byte = '"ByteLevel"' in decoder
        self._has_byte_tokens = '"ByteFallback"' in decoder

    def of(self, token: int) -> bytes:
        """The bytes of a token that is a part of a character; of any other, none have to be known."""
        spelt = str(self._tokenizer.convert_ids_to_tokens(token) or "")
        if self._has_byte_tokens and spelt.startswith("<0x"):
            return bytes([int(spelt[3:5], 16)])
        return spelt_bytes(spelt) if self._spelt_by_byte else spelt.encode()

    def end_within_character(self, tokens: Iterable[int]) -> bool:
        """Whether the tokens, the last ones of a text, end in the midst of a character."""
        decoder = getincrementaldecoder("utf-8")("replace")
        decoder.decode(b"".join(map(self.of, tokens)))
        return bool(decoder.getstate()[0])


def spelt_bytes(spelt: str) -> bytes:
    """The bytes of a word in a byte-level vocabulary; added tokens are written as they are."""
    if all(sign in _BYTES for sign in spelt):
        return bytes(_BYTES[sign] for sign in spelt)
    return spelt.encode()


def _alphabet() -> dict[str, int]:
    """The characters by which byte-level vocabularies write bytes: themselves where they are printable."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


_BYTES = _alphabet()

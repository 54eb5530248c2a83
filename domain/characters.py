"""Halves of characters: half a surrogate pair, which JSON can write and no text can hold (T2-10)."""

import json
import re
from typing import Any

_PIECE_CHARACTERS = 16 * 1024

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def has_surrogates(text: str) -> bool:
    """Whether a JSON text has escapes of surrogates, in pairs or not."""
    return _SURROGATE.search(text) is not None


def whole_json(text: str) -> str:
    """The JSON text with U+FFFD for each half of a surrogate pair, as WHATWG's encoders write it.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    written = json.dumps(json.loads(text), ensure_ascii=False)
    # In pieces, as each takes Python's lock. Halves that make a pair were joined when they were read.
    pieces = (written[at : at + _PIECE_CHARACTERS] for at in range(0, len(written), _PIECE_CHARACTERS))
    return "".join(piece.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for piece in pieces)


def read_json(text: str) -> Any:
    """The value of a JSON text, in which half a surrogate pair is U+FFFD; raises as `whole_json` does."""
    return json.loads(whole_json(text) if has_surrogates(text) else text)

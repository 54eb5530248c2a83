"""Proof that a grammar can be followed: it is, for a few tokens, before a turn is accepted with it.

llguidance makes the states of a grammar when they are needed. Some grammars have no first token; in others,
each further character takes more states than it allows, or so much time that all other turns are slower.
"""

import re
from collections.abc import Iterator, Set
from itertools import islice
from time import thread_time
from typing import Final

from llguidance import LLMatcher

_TOKEN_S = 0.005
"""The most time that a token may take. The engine follows the grammars of all its turns in one thread."""

_FIRST_TOKENS = 32
"""The first token may take as long as so many."""

_TRIED = 64
_STRIDE = 7_919
"""A prime, so that tokens from all over the vocabulary are taken."""

_WELL = ("NotStopped", "NoExtension", "EndOfSentence")
_NOT_ZERO: Final = re.compile(rb"[^\0]")


def problem(matcher: LLMatcher, avoided: Set[int], most_tokens: int) -> str | None:
    """Why a grammar cannot be followed for so many tokens; None if it can, or has come to its end.

    Args:
        matcher: of the grammar, at its beginning.
        avoided: tokens to take only if there is hardly another one, such as those that end a text.
    """
    followed, began_s = matcher.deep_copy(), thread_time()
    for step in range(most_tokens):
        if thread_time() - began_s > _TOKEN_S * (step + _FIRST_TOKENS):
            return "each token takes too long"
        mask = bytes(followed.compute_bitmask())
        if followed.is_stopped():
            break
        allowed = list(islice(_ids(mask, step * _STRIDE % len(mask)), _TRIED))
        if not allowed:
            return "no token can come next"
        followed.consume_token(next((each for each in allowed if each not in avoided), allowed[0]))
    if followed.stop_reason() in _WELL:
        return None
    return followed.get_error() or followed.stop_reason()


def _ids(mask: bytes, start: int) -> Iterator[int]:
    """The token ids in a bit mask, from a byte on and around."""
    for first, part in ((start, mask[start:]), (0, mask[:start])):
        for found in _NOT_ZERO.finditer(part):
            place = first + found.start()
            yield from (8 * place + bit for bit in range(8) if mask[place] >> bit & 1)

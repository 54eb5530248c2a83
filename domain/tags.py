"""Structural tags: the markers by which models wrap tool calls, which no client may see (R-271 … R-273).

A `TagBuffer` lets visible text through at once, holds back what could become a tag, and ends the visible
text at the first whole tag. `overlap` finds where the engine's final text goes on from what was streamed.
"""

from turnlog.domain.markers import MarkerScanner, MarkerSet

STRUCTURAL_TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|tool>",
    "<tool|>",
    "<|channel>",
    "<channel|>",
    "<|turn>",
    "<turn|>",
)

_TAGS = MarkerSet(STRUCTURAL_TAGS)

SEARCHED_CHARACTERS = 128 * 1024
"""How far back an overlap is looked for: that takes 0.1 µs a character, on the event loop."""


class TagBuffer:
    """Splits a stream of text at the first structural tag; where the stream is cut makes no difference."""

    def __init__(self) -> None:
        self._scanner = MarkerScanner(_TAGS)
        self.suppressing = False

    def push(self, text: str) -> str:
        """The text that is certainly visible now; possibly none.

        After a whole tag `suppressing` is true and nothing is visible any more.
        """
        if self.suppressing:
            return ""
        visible, tag, _ = self._scanner.scan(text)
        self.suppressing = bool(tag)
        # White space beside a tag belongs to the tag: no item is opened for it.
        return visible if visible.strip() or not tag else ""

    def flush(self) -> str:
        """What was held back and turned out to be no tag (R-275)."""
        return self._scanner.flush()


class Eraser:
    """Takes a marker out of a stream of text; where the stream is cut makes no difference."""

    def __init__(self, marker: str) -> None:
        self._scanner = MarkerScanner(MarkerSet([marker]))

    def push(self, text: str) -> str:
        """The text that certainly stays; what could become the marker is held back."""
        kept, marker, end = self._scanner.scan(text)
        pieces = [kept]
        while marker:
            kept, marker, end = self._scanner.scan(text, end)
            pieces.append(kept)
        return "".join(pieces)

    def flush(self) -> str:
        """What was held back and turned out to be no marker."""
        return self._scanner.flush()


def overlap(streamed: str, final: str) -> int:
    """The largest k such that `streamed` ends with the first k characters of `final` (R-282).

    Lengths say nothing here: an engine may trim its final text (R-283). Linear, by the prefix function of
    Knuth, Morris and Pratt, because a model can write text that makes the obvious search quadratic. Unless
    all of one text is in the other, an overlap of more than `SEARCHED_CHARACTERS` is not found.
    """
    # As nearly always: everything was streamed, or everything but the rest. These comparisons are quick.
    if final.startswith(streamed):
        return len(streamed)
    if streamed.endswith(final):
        return len(final)
    final = final[:SEARCHED_CHARACTERS]
    symbols = [*final, None, *streamed[-len(final) :]]
    prefix = [0] * len(symbols)
    for at in range(1, len(symbols)):
        length = prefix[at - 1]
        while length and symbols[at] != symbols[length]:
            length = prefix[length - 1]
        prefix[at] = length + (symbols[at] == symbols[length])
    return prefix[-1]

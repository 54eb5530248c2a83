"""Structural tags: the markers by which models wrap tool calls, which no client may see (R-271 … R-273).

A `TagBuffer` lets visible text through at once, holds back what could become a tag, and ends the visible
text at the first whole tag. `overlap` finds where the engine's final text goes on from what was streamed.
"""

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

_LONGEST = max(map(len, STRUCTURAL_TAGS))


class TagBuffer:
    """Splits a stream of text at the first structural tag; where the stream is cut makes no difference."""

    def __init__(self) -> None:
        self._held = ""
        self.suppressing = False

    def push(self, text: str) -> str:
        """The text that is certainly visible now; possibly none.

        After a whole tag `suppressing` is true and nothing is visible any more.
        """
        if self.suppressing:
            return ""
        text = self._held + text
        if "<" not in text:
            return text
        starts = [at for at in (text.find(tag) for tag in STRUCTURAL_TAGS) if at >= 0]
        if starts:
            self.suppressing = True
            self._held = ""
            visible = text[: min(starts)]
            # White space beside a tag belongs to the tag: no item is opened for it.
            return visible if visible.strip() else ""
        held = _possible_tag(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back and turned out to be no tag (R-275)."""
        held, self._held = self._held, ""
        return held


class Eraser:
    """Takes a marker out of a stream of text; where the stream is cut makes no difference."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._held = ""

    def push(self, text: str) -> str:
        """The text that certainly stays; what could become the marker is held back."""
        *kept, last = (self._held + text).split(self._marker)
        beginnings = (self._marker[:size] for size in range(len(self._marker) - 1, 0, -1))
        self._held = next((each for each in beginnings if last.endswith(each)), "")
        return "".join(kept) + last.removesuffix(self._held)

    def flush(self) -> str:
        """What was held back and turned out to be no marker."""
        held, self._held = self._held, ""
        return held


def _possible_tag(text: str) -> int:
    """Length of the suffix that could be the beginning of a tag."""
    start = text.rfind("<", max(0, len(text) - _LONGEST + 1))
    if start < 0:
        return 0
    suffix = text[start:]
    return len(suffix) if any(tag.startswith(suffix) for tag in STRUCTURAL_TAGS) else 0


def overlap(streamed: str, final: str) -> int:
    """The largest k such that `streamed` ends with the first k characters of `final` (R-282).

    Lengths say nothing here: an engine may trim its final text (R-283). Linear, by the prefix function of
    Knuth, Morris and Pratt, because a model can write text that makes the obvious search quadratic.
    """
    if not final:
        return 0
    symbols = [*final, None, *streamed[-len(final) :]]
    prefix = [0] * len(symbols)
    for at in range(1, len(symbols)):
        length = prefix[at - 1]
        while length and symbols[at] != symbols[length]:
            length = prefix[length - 1]
        prefix[at] = length + (symbols[at] == symbols[length])
    return prefix[-1]

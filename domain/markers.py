"""Find markers in text that arrives in pieces: where it is cut makes no difference.

An automaton after Aho and Corasick reads each character once, however many markers there are and however
often the text almost contains one.
"""

import re
from collections.abc import Iterable


class _State:
    """The longest end of the text so far that begins a marker; it has `depth` characters.

    `fallback` is the next shorter such end, `marker` the longest marker that ends here, "" if none does.
    """

    __slots__ = ("depth", "fallback", "marker", "next")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.fallback = self
        self.marker = ""
        self.next: dict[str, _State] = {}

    def after(self, char: str) -> "_State":
        """The state after one more character."""
        state = self
        while char not in state.next and state.depth:
            state = state.fallback
        return state.next.get(char, state)


class MarkerSet:
    """Markers to look for, in any number of texts; an empty one is ignored."""

    def __init__(self, markers: Iterable[str]) -> None:
        self.root = _State(0)
        for marker in markers:
            state = self.root
            for char in marker:
                state = state.next.setdefault(char, _State(state.depth + 1))
            state.marker = marker
        # Breadth first: a fallback is shallower, so it is complete when it is needed.
        states = [self.root]
        for state in states:
            for char, longer in state.next.items():
                longer.fallback = state.fallback.after(char) if state.depth else self.root
                longer.marker = longer.marker or longer.fallback.marker
                states.append(longer)
        self.find_first_char = re.compile("|".join(map(re.escape, self.root.next)) or "(?!)").search
        """Where the next marker may begin."""


class MarkerScanner:
    """Scans one text."""

    def __init__(self, markers: MarkerSet) -> None:
        self._root = self._state = markers.root
        self._find_first_char = markers.find_first_char
        self._held = ""

    def scan(self, text: str, start: int = 0) -> tuple[str, str, int]:
        """Read `text` from `start` up to the first marker.

        The marker that ends first is found, because it is complete first; of those that end together, the
        longest.

        Returns:
            What stands before the marker, the marker, and where in `text` it ends. Without a marker: what is
            certainly part of none, "" and the length of `text`. The rest may become a marker and is held back
            for the next call.
        """
        root, state, at = self._root, self._state, start
        while at < len(text):
            if state is root:
                possible = self._find_first_char(text, at)
                if possible is None:
                    break
                at = possible.start()
            state = state.after(text[at])
            at += 1
            if state.marker:
                before = (self._held + text[start:at]).removesuffix(state.marker)
                self._state, self._held = root, ""
                return before, state.marker, at
        read = self._held + text[start:]
        certain = len(read) - state.depth
        self._state, self._held = state, read[certain:]
        return read[:certain], "", len(text)

    def flush(self) -> str:
        """The text held back, which has become no marker. The next scan starts afresh."""
        held = self._held
        self._state, self._held = self._root, ""
        return held

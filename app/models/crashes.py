"""The crashes of one model: whether and when it is reloaded, and which prompt is refused. No clock."""

from collections import deque
from typing import Final

from msgspec import Struct

PAUSES_S: Final = (0.0, 0.25, 0.5, 1.0)
"""How long to wait before a model is reloaded: after its first crash, its second …"""

WINDOW_S: Final = 600.0
MOST_CRASHES: Final = len(PAUSES_S) + 1
"""After this many crashes within `WINDOW_S`, only an operator can load the model again."""

REFUSAL_S: Final = 600.0
"""How long a prompt is refused that was the only one running at two crashes in a row."""


class LastCrash(Struct, frozen=True):
    """The latest crash of a model, in Unix milliseconds, and its reason."""

    at_ms: int
    reason: str


class Crashes:
    """Counts the crashes of one model since the server's start. Times are Unix milliseconds.

    A failed reload counts as one more crash.
    """

    def __init__(self) -> None:
        self.total = 0
        self.last: LastCrash | None = None
        self._recent_ms: deque[int] = deque(maxlen=MOST_CRASHES)
        self._lone_prompt: str | None = None
        self._refused_until_ms: dict[str, int] = {}

    def record(self, reason: str, *, at_ms: int) -> float | None:
        """Count a crash; returns the pause before the reload in seconds, None for no reload."""
        self.total += 1
        self.last = LastCrash(at_ms, reason)
        self._recent_ms.append(at_ms)
        count = sum(at_ms - each_ms < WINDOW_S * 1000 for each_ms in self._recent_ms)
        return None if count >= MOST_CRASHES else PAUSES_S[count - 1]

    def blame(self, lone_prompt: str | None, *, at_ms: int) -> None:
        """Record the digest of the only prompt running at a crash; None if there were none or several."""
        if lone_prompt is not None and lone_prompt == self._lone_prompt:
            self._refused_until_ms = {
                prompt: until_ms for prompt, until_ms in self._refused_until_ms.items() if until_ms > at_ms
            }
            self._refused_until_ms[lone_prompt] = at_ms + round(REFUSAL_S * 1000)
        self._lone_prompt = lone_prompt

    def refused_until_ms(self, prompt: str, *, now_ms: int) -> int | None:
        """Until when the prompt with this digest is refused, if it is."""
        until_ms = self._refused_until_ms.get(prompt, now_ms)
        return until_ms if until_ms > now_ms else None

    def forgive(self) -> None:
        """Reset the count that limits reloads, on an operator's request."""
        self._recent_ms.clear()

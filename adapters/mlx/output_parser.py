"""Split a turn's text into thinking, answer and calls as it streams. No model, no I/O.

Text goes in in pieces, cut anywhere, and the visible part comes out at once. Only text that could still
become a marker or a stop text is buffered, and white space that may turn out to stand next to a marker.
"""

from collections.abc import Callable, Sequence

from turnlog.adapters.engine_process.messages import Shape
from turnlog.adapters.mlx.chat_format import ANSWER, CALL, DEFAULT_CALL, THINKING, Marker, Markers
from turnlog.domain.items import Logprob
from turnlog.domain.markers import MarkerScanner, MarkerSet
from turnlog.domain.ports import EngineCall, EngineChunk, ReasoningChunk, TextChunk

# States besides those of a chat format: JSON, calls, either (while still empty), or past a stop text.
_CONSTRAINED = "constrained"
_FORCED = "forced"
_OPEN = "open"
_STOPPED = "stopped"

_HOMES: dict[Shape, str] = {"free": ANSWER, "json": _CONSTRAINED, "calls": _FORCED, "json or calls": _OPEN}

Parse = Callable[[str], tuple[EngineCall, ...]]
"""Parses calls from a text. A text that is not a call comes back as one call whose status is not "ok"."""


class OutputParser:
    """Parses the text of one turn. `text`, `thought` and `calls` are complete after `end`.

    From the first call on, nothing more is shown, but nothing is lost: text that cannot be parsed as a call
    becomes part of `text`, markers included.

    Args:
        markers: the model's markers by state (`ChatFormat.markers`).
        begins_with: the state of its first text.
        stop: texts that end the answer. They count in the answer only, not in thinking or calls.
        parse: parses calls; None if there are no tools, and call markers are then ordinary text.
        shape: the form that a constraint gives the answer. JSON has no markers; "calls" is nothing but
            calls for `parse`; in "json or calls", calls begin with a marker.
    """

    def __init__(
        self,
        markers: Markers,
        *,
        begins_with: str = ANSWER,
        stop: Sequence[str] = (),
        parse: Parse | None = None,
        shape: Shape = "free",
    ) -> None:
        self._parse = parse
        home = _HOMES[shape]
        self._ways = _ways(markers, stop, home, calls=parse is not None)
        self._scanners = {state: MarkerScanner(MarkerSet(way)) for state, way in self._ways.items()}
        self._unmarked = MarkerScanner(MarkerSet(()))
        self._state = begins_with if home == ANSWER or begins_with == THINKING else home
        # White space next to a marker of calls or thinking belongs to the marker.
        self._holds_space = home == ANSWER and not {CALL, THINKING}.isdisjoint(self._ways[ANSWER].values())
        self._unread = self._gap = ""
        self._kept: list[str] = []
        self._thoughts: list[str] = []
        self._has_thought = self._thought_begins = begins_with == THINKING
        self._opened_by = ""
        self._called = False
        self._call: list[str] = []
        self._calls: list[EngineCall] = []
        self._logprobs: list[Logprob] = []

    @property
    def thinks(self) -> bool:
        """Whether the next text is thinking."""
        return self._state == THINKING

    @property
    def stopped(self) -> bool:
        """Whether a stop text has ended the answer."""
        return self._state == _STOPPED

    @property
    def text(self) -> str:
        """The answer without its calls."""
        text = "".join(self._kept)
        return text.rstrip() if any(call.status == "ok" for call in self._calls) else text

    @property
    def thought(self) -> str | None:
        """The thinking, if there was any."""
        return "".join(self._thoughts) or None

    @property
    def calls(self) -> tuple[EngineCall, ...]:
        """The calls in order, including those that could not be parsed."""
        return tuple(self._calls)

    def receive(self, text: str, logprob: Logprob | None = None) -> list[EngineChunk]:
        """Process a token's text; returns the chunks that are visible now. `logprob` is that token's."""
        chunks: list[EngineChunk] = []
        if logprob is not None:
            self._logprobs.append(logprob)
        text, at = self._unread + text, 0
        self._unread = ""
        while True:
            state = self._state
            before, marker, at = self._scanner.scan(text, at)
            self._take(before, chunks)
            if not marker:
                break
            if self._state != state:
                # The text before it began the answer, so this is no longer a marker.
                text, at = marker + text[at:], 0
                continue
            self._change_state(marker, chunks)
            # The marker's own tokens are not shown; the last one may extend past the marker.
            self._logprobs = self._logprobs[-1:] if at < len(text) else []
        if self._state in (THINKING, CALL, _FORCED):
            # Log probabilities are reported for the answer only.
            self._logprobs.clear()
        return chunks

    def end(self) -> list[EngineChunk]:
        """Flush buffered text that turned out to be plain. Call `receive` no more afterwards."""
        chunks: list[EngineChunk] = []
        self._take(self._unread + self._scanner.flush(), chunks)
        if self._state == CALL:
            self._close_call("")
        elif self._state == _FORCED:
            assert self._parse
            self._calls += self._parse("".join(self._call))
        elif self._state != THINKING and not self._called:
            self._show(self._gap, chunks)
        return chunks

    @property
    def _scanner(self) -> MarkerScanner:
        return self._scanners.get(self._state, self._unmarked)

    def _take(self, text: str, chunks: list[EngineChunk]) -> None:
        """Route a text without markers by the current state."""
        if not text or self._state == _STOPPED:
            return
        if self._state in (CALL, _FORCED):
            self._call.append(text)
        elif self._state == THINKING:
            self._think(text, chunks)
        else:
            self._answer(text, chunks)

    def _think(self, text: str, chunks: list[EngineChunk]) -> None:
        if self._thought_begins:
            text = text.lstrip("\n")
            self._thought_begins = not text
        text = self._gap + text
        shown = text.rstrip("\n")
        self._gap = text[len(shown) :]
        if shown:
            self._thoughts.append(shown)
            chunks.append(ReasoningChunk(shown))

    def _answer(self, text: str, chunks: list[EngineChunk]) -> None:
        if self._has_thought and not self._kept:
            # Templates of reasoning models put empty lines between thought and answer.
            text = text.lstrip("\n")
            if not text:
                self._logprobs.clear()
                return
        self._kept.append(text)
        if self._state == _OPEN and text.strip():
            # Buffered text has other markers now.
            self._unread = self._scanner.flush()
            self._state = _CONSTRAINED
        if self._called:
            return
        text = self._gap + text
        shown = text.rstrip() if self._holds_space else text
        self._gap = text[len(shown) :]
        self._show(shown, chunks)

    def _show(self, text: str, chunks: list[EngineChunk]) -> None:
        if text:
            chunks.append(TextChunk(text, tuple(self._logprobs)))
            self._logprobs.clear()

    def _change_state(self, marker: str, chunks: list[EngineChunk]) -> None:
        """Move to the state that a marker begins."""
        then = self._ways[self._state][marker]
        if self._state == CALL:
            self._close_call(marker)
        if then == CALL:
            self._opened_by, self._called = marker, True
        elif then == THINKING != self._state:
            self._begin_thought(chunks)
        if self._state == THINKING != then or then == CALL:
            self._gap = ""
        self._state = then

    def _begin_thought(self, chunks: list[EngineChunk]) -> None:
        if any(map(str.strip, self._kept)):
            if not self._called:
                self._show(self._gap, chunks)
        else:
            self._kept.clear()
        self._gap = "\n\n" if self._thoughts else ""
        self._has_thought = self._thought_begins = True

    def _close_call(self, closed_by: str) -> None:
        assert self._parse
        text = "".join(self._call)
        self._call.clear()
        calls = self._parse(text)
        self._calls += calls
        if any(call.status != "ok" for call in calls):
            self._kept.append(f"{self._opened_by}{text}{closed_by}")


def _ways(markers: Markers, stop: Sequence[str], home: str, *, calls: bool) -> dict[str, dict[str, str]]:
    """The markers of each state in a turn whose answer's state is `home`, with the state each begins."""
    stops = dict.fromkeys(filter(None, stop), _STOPPED)
    if home != ANSWER:
        thinking = [
            (text, home if then == ANSWER else then)
            for text, then in markers.get(THINKING, ())
            if then != CALL
        ]
        opening = {**stops, DEFAULT_CALL[0]: _FORCED}
        return {THINKING: _first_wins(thinking), _CONSTRAINED: stops, _FORCED: {}, _OPEN: opening}
    ways = {
        state: _first_wins([way for way in found if calls or way[1] != CALL])
        for state, found in markers.items()
    }
    return {state: way if state in (THINKING, CALL) else {**stops, **way} for state, way in ways.items()}


def _first_wins(ways: Sequence[Marker]) -> dict[str, str]:
    return dict(reversed(ways))

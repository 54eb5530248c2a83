"""How a model marks thinking and calls in its output, as far as `mlx_lm` knows."""

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.domain.tokens import TokenIds

ANSWER = "normal"
THINKING = "reasoning"
CALL = "tool"
"""The states of `mlx_lm`. A chat format may have more; their text is part of the answer."""

Marker = tuple[str, str]
"""A text that is not part of the answer, and the state that it begins."""

Markers = Mapping[str, tuple[Marker, ...]]
"""The markers to look for, by state."""

DEFAULT_CALL = ("<tool_call>", "</tool_call>")
"""The markers around a call for models without a format of their own."""


class ChatFormat:
    """The immutable chat format of one tokenizer, a `TokenizerWrapper` of `mlx_lm`."""

    def __init__(self, tokenizer: Any) -> None:
        self.ends: frozenset[int] = frozenset(tokenizer.eos_token_ids)
        self.think_start: str | None = tokenizer.think_start
        self.think_end: str | None = tokenizer.think_end
        self.think_start_ids: TokenIds = tuple(tokenizer.think_start_tokens or ())
        self.think_end_ids: TokenIds = tuple(tokenizer.think_end_tokens or ())
        self.call_start, self.call_end = DEFAULT_CALL
        if tokenizer.has_tool_calling:
            # An empty end: the rest of the answer is the call.
            self.call_start, self.call_end = tokenizer.tool_call_start, tokenizer.tool_call_end or ""
        self.markers = self._markers(tokenizer)
        self._initial: str | None = tokenizer.response_initial_state
        vocabulary = tokenizer.get_vocab()
        self.default_call_ids = tuple(vocabulary[each] for each in DEFAULT_CALL if each in vocabulary)
        """The ids of the two texts of `DEFAULT_CALL`; fewer if the tokenizer lacks one."""

    def begins_with(self, prompt: TokenIds) -> str:
        """The state of the model's first text after a prompt."""
        if self._initial:
            return self._initial
        return THINKING if self.leaves_thinking_open(prompt) else ANSWER

    def leaves_thinking_open(self, ids: TokenIds) -> bool:
        """Whether thinking begins in the last message of `ids` and does not end there."""
        if self.think_start is None:
            return False
        # Backwards through the last message only, so that a long prompt costs no time.
        for place in range(len(ids) - 1, -1, -1):
            if ids[place] in self.ends or _stands_at(ids, place, self.think_end_ids):
                return False
            if _stands_at(ids, place, self.think_start_ids):
                return True
        return False

    def ends_thinking(self, ids: TokenIds) -> bool:
        """Whether thinking ends somewhere in `ids`."""
        return any(_stands_at(ids, place, self.think_end_ids) for place in range(len(ids)))

    def ends_thinking_of_prompt(self, ids: TokenIds) -> bool:
        """Whether thinking ends in an answer that did not begin it: the prompt had."""
        for place in range(len(ids)):
            if _stands_at(ids, place, self.think_start_ids):
                return False
            if _stands_at(ids, place, self.think_end_ids):
                return True
        return False

    def opens_thinking(self, text: str) -> bool:
        """Whether thinking begins in a text and does not end there."""
        return bool(self.think_start and self.think_end) and (
            text.rfind(self.think_start or "") > text.rfind(self.think_end or "")
        )

    def _markers(self, tokenizer: Any) -> Markers:
        found: dict[str, list[Marker]] = {ANSWER: [], THINKING: [], CALL: []}
        for state, ways in tokenizer.response_transitions.items():
            found.setdefault(state, []).extend(ways)
        has_call_marker = any(then == CALL for ways in found.values() for _, then in ways)
        if self.think_start and self.think_end:
            # A model may repeat an opening or closing marker; neither is ever shown.
            found[ANSWER] += [(self.think_start, THINKING), (self.think_end, ANSWER)]
            found[THINKING] += [(self.think_end, ANSWER), (self.think_start, THINKING)]
            # Some models call a tool in the middle of a thought and never close it.
            found[THINKING].append((self.call_start, CALL))
        if not has_call_marker:
            found[ANSWER].append((self.call_start, CALL))
        if self.call_end:
            found[CALL].append((self.call_end, ANSWER))
        if self.call_start != DEFAULT_CALL[0]:
            # A template that refused the conversation was given it with the default way to call.
            found[ANSWER].append((DEFAULT_CALL[0], CALL))
            if self.call_end:
                found[CALL].append((DEFAULT_CALL[1], ANSWER))
        found[ANSWER] += [(marker, ANSWER) for marker in tokenizer.structural_markers]
        return {state: tuple(ways) for state, ways in found.items()}


def _stands_at(ids: Sequence[int], place: int, marker: TokenIds) -> bool:
    return bool(marker) and tuple(ids[place : place + len(marker)]) == marker

"""Recorded answers in a prompt: the ids the model itself made, in place of the text they would be read from.

The same text can be written in several ways, so a prompt that is encoded anew may differ from what the model
has read. With the recorded ids, a prompt begins with exactly the prompt and the answer before it. They hold
the whole answer, thinking and calls included, so they are used only where the template shows all of that.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Protocol

from turnlog.adapters.mlx.chat_format import ChatFormat
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.tags import overlap
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Json

_REASONING = ("reasoning", "reasoning_content")


class Rendered(Protocol):
    """A conversation as the chat template writes it in this turn."""

    def __call__(self, conversation: Sequence[Json], *, asks: bool = True) -> str: ...


class PromptSplicer:
    """Puts recorded answers into the prompts of one model. Any thread."""

    def __init__(self, chat_format: ChatFormat) -> None:
        self._chat_format = chat_format

    def pieces(
        self, conversation: Sequence[Json], recorded: Mapping[int, TokenIds], rendered: Rendered
    ) -> list[str | TokenIds]:
        """The prompt as texts that are still to be encoded, and ids between them.

        Raises:
            InvalidRequestError: the template refuses the conversation.
        """
        answers = {index: self._without_end(ids) for index, ids in recorded.items()}
        fitting = [index for index, ids in answers.items() if self._is_whole(conversation[index], ids)]
        while fitting:
            places = _Places(conversation, fitting)
            try:
                texts, openings = self._texts(places, answers, rendered)
            except InvalidRequestError:
                # With its messages bare it is another conversation, which the template may not like.
                break
            misfits = [index for index in fitting if index not in openings]
            if not misfits:
                pieces: list[str | TokenIds] = [texts[0]]
                for index, text in zip(places.order, texts[1:], strict=True):
                    pieces += [f"{pieces.pop()}{openings[index]}", answers[index], text]
                return pieces
            fitting = [index for index in fitting if index not in misfits]
        return [rendered(conversation)]

    def _without_end(self, ids: TokenIds) -> TokenIds:
        # The template writes the end of the message itself.
        return ids[:-1] if ids and ids[-1] in self._chat_format.ends else ids

    def _is_whole(self, message: Json, ids: TokenIds) -> bool:
        """Whether the ids stand for exactly the message; those of a thought cut off do not."""
        ended = self._chat_format.ends_thinking(ids)
        thought = "reasoning" in message
        return bool(ids) and ended == thought and not self._chat_format.leaves_thinking_open(ids)

    def _texts(
        self, places: "_Places", answers: Mapping[int, TokenIds], rendered: Rendered
    ) -> tuple[list[str], dict[int, str]]:
        """The texts around the answers, and for each answer that fits in its place what has to open it."""
        bare = rendered(places.bare)
        texts = places.split(bare)
        shows_thought = places.with_thoughts_shown(rendered)
        shows_calls = places.with_calls_apart(rendered, texts)
        openings = {index: "" for index in places.order if index in shows_thought & shows_calls}
        unopened = [index for index in openings if self._chat_format.ends_thinking_of_prompt(answers[index])]
        if unopened:
            ask = bare.removeprefix(rendered(places.bare, asks=False))
            for index in unopened:
                before = texts[places.order.index(index)]
                opening = ask[overlap(before, ask) :]
                if opening != ask and self._chat_format.opens_thinking(opening):
                    openings[index] = opening
                else:
                    del openings[index]
        return texts, openings


class _Places:
    """Where in a rendered conversation some of its messages stand, found by words put in their place."""

    def __init__(self, conversation: Sequence[Json], indices: Sequence[int]) -> None:
        self._conversation = conversation
        self._indices = indices
        self._nonce = secrets.token_hex(8)
        self.order: list[int] = []
        self.bare = self._with()

    def split(self, text: str) -> list[str]:
        """The texts around the places, whose `order` is then known; one that is not there once is none."""
        parts = re.split(f"s{self._nonce}x(\\d+)s", text)
        found = [int(index) for index in parts[1::2]]
        if len(set(found)) < len(found):
            raise InvalidRequestError("the template repeats a message")
        self.order = found
        return parts[::2]

    def with_thoughts_shown(self, rendered: Rendered) -> set[int]:
        """The messages that have no thought, or whose thought the template shows."""
        thoughtful = {index for index in self._indices if "reasoning" in self._conversation[index]}
        if not thoughtful:
            return set(self._indices)
        text = rendered(self._with(thoughts=thoughtful))
        return {index for index in self._indices if index not in thoughtful or self._thought(index) in text}

    def with_calls_apart(self, rendered: Rendered, texts: Sequence[str]) -> set[int]:
        """The messages that have no calls, or whose calls change nothing in the rest of the prompt."""
        calling = {index for index in self._indices if "tool_calls" in self._conversation[index]}
        if not calling:
            return set(self._indices)
        order = list(self.order)
        with_calls = self.split(rendered(self._with(calls=True)))
        if self.order != order:
            return set()
        fits = {
            index
            for index, here, bare in zip(order, with_calls[1:], texts[1:], strict=True)
            if here.endswith(bare)
        }
        return {index for index in self._indices if index not in calling or index in fits}

    def _with(self, *, thoughts: set[int] | None = None, calls: bool = False) -> list[Json]:
        left_out = {*_REASONING, *(() if calls else ("tool_calls",))}
        conversation = list(self._conversation)
        for index in self._indices:
            message = conversation[index]
            bare = {key: value for key, value in message.items() if key not in left_out}
            bare["content"] = f"s{self._nonce}x{index}s"
            if thoughts and index in thoughts:
                bare |= dict.fromkeys(_REASONING, self._thought(index))
            conversation[index] = bare
        return conversation

    def _thought(self, index: int) -> str:
        return f"t{self._nonce}x{index}t"

"""Render a conversation as token ids, in which only the chat template can produce special tokens.

The usual way, rendering the template and encoding the text, reads `<|im_end|>` typed by a user as the end
of the user's message. Here such texts are escaped while the template is rendered (`TokenEscape`) and encoded
as plain text afterwards. A conversation without any gets exactly the ids of the usual way.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Encoding, Tokenizer

from turnlog.adapters.mlx.chat_format import ChatFormat
from turnlog.adapters.mlx.least_tokens import LeastTokens
from turnlog.adapters.mlx.special_spans import SpecialSpans
from turnlog.adapters.mlx.special_tokens import TokenEscape
from turnlog.adapters.mlx.splicing import PromptSplicer
from turnlog.adapters.mlx.template import ChatTemplate, conversation_of
from turnlog.adapters.mlx.toolparse import functions
from turnlog.domain.errors import InvalidRequestError, PromptTooLongError
from turnlog.domain.messages import Message
from turnlog.domain.ports import Prompt
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool


class PromptRenderer:
    """Renders prompts for one tokenizer, a `TokenizerWrapper` of `mlx_lm`. Any thread."""

    def __init__(self, tokenizer: Any, chat_format: ChatFormat) -> None:
        self._template = ChatTemplate(tokenizer)
        self._splicer = PromptSplicer(chat_format)
        self._added = frozenset(tokenizer.added_tokens_decoder)
        # Own copies, never changed: the tokenizer's own must not be used by two threads at once.
        definition = json.loads(tokenizer.backend_tokenizer.to_str())
        definition |= {"truncation": None, "padding": None}
        self._encoder = Tokenizer.from_str(json.dumps(definition))
        self._plain = Tokenizer.from_str(json.dumps(definition | {"added_tokens": []}))
        self._special = SpecialSpans(definition)
        self._least = LeastTokens(definition)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
        most_tokens: int | None = None,
    ) -> Prompt:
        """The prompt that asks for the next answer; see `InferenceEngine.render`.

        Raises:
            InvalidRequestError: the template refuses the conversation.
            PromptTooLongError: it has more than `most_tokens`; found before it is encoded, if it can be.
        """
        escape = TokenEscape(self._special_spans)
        try:
            conversation = escape.escaped(conversation_of(messages))
            offered = escape.escaped(functions(tools))
        except RecursionError as error:
            raise InvalidRequestError("The conversation is nested too deeply.") from error
        fitted = self._template.fitted(conversation, offered, effort=effort)
        pieces = self._splicer.pieces(conversation, recorded or {}, fitted)
        least = sum(self._least_tokens(piece, escape) for piece in pieces)
        if most_tokens is not None and least > most_tokens:
            raise PromptTooLongError(least, is_least=True)
        ids = tuple(id_ for piece in pieces for id_ in self._ids(piece, escape))
        if most_tokens is not None and len(ids) > most_tokens:
            raise PromptTooLongError(len(ids))
        return Prompt(ids, self._template.effort(effort))

    def decode_tokens(self, ids: TokenIds) -> tuple[str, ...]:
        """The text of each id on its own; part of a character is rendered as "\ufffd"."""
        return tuple(self._encoder.decode([id_], skip_special_tokens=False) for id_ in ids)

    def _ids(self, piece: str | TokenIds, escape: TokenEscape) -> Iterator[int]:
        if isinstance(piece, str):
            yield from self._text_ids(piece, escape)
        else:
            yield from piece

    def _text_ids(self, text: str, escape: TokenEscape) -> Iterator[int]:
        """The ids of a rendered text. A stretch between special tokens that has escapes is encoded plain."""
        if not escape.contains_escaped(text):
            yield from self._encoding(text).ids
            return
        usual = begins = 0
        for start, end in [*self._special_spans(text), (len(text), len(text))]:
            if escape.contains_escaped(text[begins:start]):
                yield from self._encoding(text[usual:begins]).ids
                yield from self._plain_ids(escape.restored(text[begins:start]))
                usual = start
            begins = end
        yield from self._encoding(text[usual:]).ids

    def _plain_ids(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        if self._added.isdisjoint(ids):
            return ids
        # Some special tokens are ordinary vocabulary words as well; no single character is one.
        return [id_ for each in text for id_ in self._plain.encode(each, add_special_tokens=False).ids]

    def _encoding(self, text: str) -> Encoding:
        return self._encoder.encode(text, add_special_tokens=False)

    def _special_spans(self, text: str) -> list[tuple[int, int]]:
        found = self._special.find(text)
        if found is not None:
            return found
        encoding = self._encoding(text)
        return [span for id_, span in zip(encoding.ids, encoding.offsets, strict=True) if id_ in self._added]

    def _least_tokens(self, piece: str | TokenIds, escape: TokenEscape) -> int:
        """How many tokens a piece has at least; quick, also for a very long one."""
        if not isinstance(piece, str):
            return len(piece)
        special = self._special.find(piece)
        if special is None:
            return 0
        edges = [0, *(edge for span in special for edge in span), len(piece)]
        others = (piece[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
        return len(special) + self._least.of(escape.restored("".join(others)))

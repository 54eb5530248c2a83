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
from turnlog.adapters.mlx.special_tokens import TokenEscape
from turnlog.adapters.mlx.splicing import PromptSplicer
from turnlog.adapters.mlx.template import ChatTemplate, conversation_of
from turnlog.adapters.mlx.toolparse import functions
from turnlog.domain.errors import InvalidRequestError
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

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
    ) -> Prompt:
        """The prompt that asks for the next answer; see `InferenceEngine.render`.

        Raises:
            InvalidRequestError: the template refuses the conversation.
        """
        escape = TokenEscape(lambda text: self._special_spans(self._encoding(text)))
        try:
            conversation = escape.escaped(conversation_of(messages))
            offered = escape.escaped(functions(tools))
        except RecursionError as error:
            raise InvalidRequestError("The conversation is nested too deeply.") from error
        fitted = self._template.fitted(conversation, offered, effort=effort)
        pieces = self._splicer.pieces(conversation, recorded or {}, fitted)
        ids = tuple(id_ for piece in pieces for id_ in self._ids(piece, escape))
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
        encoding = self._encoding(text)
        if not escape.contains_escaped(text):
            yield from encoding.ids
            return
        usual = begins = 0
        for start, end in [*self._special_spans(encoding), (len(text), len(text))]:
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

    def _special_spans(self, encoding: Encoding) -> list[tuple[int, int]]:
        return [span for id_, span in zip(encoding.ids, encoding.offsets, strict=True) if id_ in self._added]

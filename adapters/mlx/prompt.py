"""A conversation as token ids, in which nobody but the chat template speaks in control tokens.

The usual way, rendering the template and encoding the text, reads `<|im_end|>` typed by a user as the end
of the user's message. Here the template is rendered with sentinels in place of the contents, so that it is
known which text is whose: a content out of which the tokenizer reads a control token is encoded as plain
text. A conversation without such a content gets exactly the ids of the usual way.
"""

import json
import re
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer

from domain.errors import InvalidRequestError
from domain.messages import Message
from domain.ports import Prompt
from domain.tokens import TokenIds

# White space around a sentinel: where a template trims contents, it is gone afterwards.
_EDGE = "\N{EM SPACE}"


@dataclass(frozen=True)
class _Piece:
    """A part of the prompt: text of the template, text of a message, or ids to be taken as they are."""

    text: str = ""
    theirs: bool = False
    ids: TokenIds | None = None


class PromptRenderer:
    """Renders prompts for one tokenizer, a `TokenizerWrapper` of `mlx_lm`. Any thread."""

    def __init__(self, tokenizer: Any) -> None:
        self._template = tokenizer
        self._ends = frozenset(tokenizer.eos_token_ids)
        self._added = frozenset(tokenizer.added_tokens_decoder)
        # Own copies, never changed: the tokenizer's own must not be used by two threads at once.
        definition = json.loads(tokenizer.backend_tokenizer.to_str())
        definition |= {"truncation": None, "padding": None}
        self._encoder = Tokenizer.from_str(json.dumps(definition))
        self._plain = Tokenizer.from_str(json.dumps(definition | {"added_tokens": []}))

    def render(self, messages: Sequence[Message], recorded: Mapping[int, TokenIds]) -> Prompt:
        """The prompt that asks for the next answer; see `InferenceEngine.render`.

        Raises:
            InvalidRequestError: the template refuses the conversation.
        """
        spoken = [i for i, message in enumerate(messages) if message.content.strip() or i in recorded]
        nonce = secrets.token_hex(8)
        veiled = [message.content for message in messages]
        for i in spoken:
            veiled[i] = f"{_EDGE}{_sentinel(nonce, i)}{_EDGE}"
        texts, order = _unwoven(self._rendered(messages, veiled), nonce)
        if order != spoken:
            # A template that repeats, reorders, cuts or escapes contents: whose text is whose cannot be told.
            text = self._rendered(messages, [message.content for message in messages])
            return Prompt(tuple(self._encoder.encode(text, add_special_tokens=False).ids))
        contents = [self._content(messages[i].content, recorded.get(i)) for i in spoken]
        return Prompt(tuple(self._ids(_woven(texts, contents))))

    def _rendered(self, messages: Sequence[Message], contents: Sequence[str]) -> str:
        conversation = [
            {"role": message.role, "content": content}
            for message, content in zip(messages, contents, strict=True)
        ]
        try:
            return str(
                self._template.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
            )
        except TemplateError as error:
            raise InvalidRequestError(
                f"The model's chat template refuses this conversation: {error}", param="input"
            ) from error

    def _content(self, text: str, recorded: TokenIds | None) -> _Piece:
        if recorded is None:
            return _Piece(text, theirs=True)
        # The template writes the end of the message itself.
        said = recorded[:-1] if recorded and recorded[-1] in self._ends else recorded
        return _Piece(ids=said)

    def _ids(self, pieces: Sequence[_Piece]) -> Iterator[int]:
        """The ids of all pieces; neighbouring texts are encoded together, as the usual way does."""
        for is_text, run in groupby(pieces, key=lambda piece: piece.ids is None):
            if is_text:
                yield from self._text_ids(list(run))
            else:
                for piece in run:
                    yield from piece.ids or ()

    def _text_ids(self, pieces: list[_Piece]) -> Iterator[int]:
        encoding = self._encoder.encode("".join(piece.text for piece in pieces), add_special_tokens=False)
        spans = [span for id_, span in zip(encoding.ids, encoding.offsets, strict=True) if id_ in self._added]
        hostile = _reaching_into_contents(pieces, spans)
        if not hostile:
            yield from encoding.ids
            return
        for is_hostile, run in groupby(enumerate(pieces), key=lambda numbered: numbered[0] in hostile):
            texts = [piece for _, piece in run]
            if is_hostile:
                for piece in texts:
                    yield from self._plain.encode(piece.text, add_special_tokens=False).ids
            else:
                yield from self._text_ids(texts)


def _sentinel(nonce: str, index: int) -> str:
    # A quote, a line's end and a bracket: a template that escapes contents breaks the sentinel.
    return f'{nonce}"\n<{index}>'


def _unwoven(rendered: str, nonce: str) -> tuple[list[str], list[int]]:
    """The template's own texts, and the indices of the contents that stand between them."""
    parts = re.split(f'{nonce}"\n<(\\d+)>', rendered)
    return parts[::2], [int(index) for index in parts[1::2]]


def _woven(texts: Sequence[str], contents: Sequence[_Piece]) -> list[_Piece]:
    """Template and contents in turn. Each content is trimmed at the sides at which the template trims it."""
    pieces = [_Piece(texts[0])]
    for content, after in zip(contents, texts[1:], strict=True):
        before = pieces.pop().text
        text = content.text if before.endswith(_EDGE) else content.text.lstrip()
        text = text if after.startswith(_EDGE) else text.rstrip()
        pieces += [
            _Piece(before.removesuffix(_EDGE)),
            _Piece(text, content.theirs, content.ids),
            _Piece(after.removeprefix(_EDGE)),
        ]
    return pieces


def _reaching_into_contents(pieces: Sequence[_Piece], spans: Sequence[tuple[int, int]]) -> set[int]:
    """Which pieces are contents that one of `spans`, of a control token, takes more than white space of."""
    starts = list(accumulate((len(piece.text) for piece in pieces), initial=0))
    reached: set[int] = set()
    for left, right in spans:
        for number in range(bisect_right(starts, left) - 1, bisect_left(starts, right)):
            start, piece = starts[number], pieces[number]
            if piece.theirs and piece.text[max(left - start, 0) : right - start].strip():
                reached.add(number)
    return reached

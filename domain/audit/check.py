"""Whether a turn, run again with the same seed on the same model, said the same (a check)."""

from collections.abc import Callable
from typing import Literal, NamedTuple, assert_never

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.ports import InferenceEngine
from turnlog.domain.response import Response
from turnlog.domain.tokens import TokenIds, common_prefix, unpack

Spell = Callable[[TokenIds], tuple[str, ...]]
"""The text of each token id on its own."""


class Token(NamedTuple):
    """One token of an answer; `text` is what it says on its own."""

    id: int
    text: str


class Difference(NamedTuple):
    """The first place at which two answers differ; None is the end of one of them.

    `at` counts tokens from 0, or characters if the engine has no token ids.
    """

    at: int
    original: Token | str | None
    replay: Token | str | None


class Verdict(NamedTuple):
    """How a replay compares with its original.

    `alone` says whether both had the engine to themselves: in a batch, the last bits of a number may differ.
    """

    original: str
    replay: str
    compared: Literal["tokens", "text"]
    same_prompt: bool
    alone: bool
    difference: Difference | None

    @property
    def identical(self) -> bool:
        """Whether the model read the same and said the same."""
        return self.same_prompt and self.difference is None


def check_checkable(original: Response, engine: InferenceEngine) -> None:
    """Refuse a check that could say nothing.

    Raises:
        InvalidRequestError: the turn never reached a model, ended without an answer to compare with, or the
            model is another one by now.
    """
    started = original.started
    if started is None:
        raise InvalidRequestError(
            f"'{original.id}' never reached a model, so there is nothing to check; run it again instead.",
            code="nothing_to_check",
        )
    if started.model_fingerprint != engine.info.model_fingerprint:
        raise InvalidRequestError(
            f"'{original.created.model}' is another model than the one that made '{original.id}' (its "
            "fingerprint differs), so a check could not be identical; run it again instead.",
            param="model",
            code="model_fingerprint_differs",
        )
    if _output_ids(original) is None and not original.items:
        raise InvalidRequestError(
            f"'{original.id}' ended before it had an answer, so there is nothing to check; run it again "
            "instead.",
            code="nothing_to_check",
        )


def judge(original: Response, replay: Response, spell: Spell) -> Verdict:
    """Compare two turns that have ended."""
    assert original.started
    said, said_again = _output_ids(original), _output_ids(replay)
    in_tokens = said is not None and said_again is not None
    return Verdict(
        original=original.id,
        replay=replay.id,
        compared="tokens" if in_tokens else "text",
        same_prompt=replay.started is not None
        and replay.started.prompt.digest == original.started.prompt.digest,
        alone=all(turn.ended is not None and turn.ended.alone is not False for turn in (original, replay)),
        difference=_first_of_tokens(said, said_again, spell)
        if said is not None and said_again is not None
        else _first_of_texts(_text(original), _text(replay)),
    )


def _output_ids(response: Response) -> TokenIds | None:
    packed = response.ended.output_ids if response.ended else None
    return None if packed is None else unpack(packed)


def _first_of_tokens(said: TokenIds, said_again: TokenIds, spell: Spell) -> Difference | None:
    index = common_prefix(said, said_again)
    if index == len(said) == len(said_again):
        return None

    def token(ids: TokenIds) -> Token | None:
        here = ids[index : index + 1]
        return Token(here[0], spell(here)[0]) if here else None

    return Difference(index, token(said), token(said_again))


def _first_of_texts(said: str, said_again: str) -> Difference | None:
    if said == said_again:
        return None
    index = next(
        (at for at, pair in enumerate(zip(said, said_again, strict=False)) if pair[0] != pair[1]),
        min(len(said), len(said_again)),
    )
    return Difference(index, said[index : index + 20] or None, said_again[index : index + 20] or None)


def _text(response: Response) -> str:
    """Everything that the model said, calls included, as one text."""
    return "\n".join(map(_said, response.items))


def _said(item: Item) -> str:
    match item:
        case MessageItem(text=text) | ReasoningItem(text=text):
            return text
        case FunctionCallItem(name=name, arguments=text) | CustomCallItem(name=name, input=text):
            return f"{name}({text})"
        case _:
            assert_never(item)

"""Whether a turn, run again with the same seed on the same model, gave the same output (a check)."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from turnlog.domain.audit.compare import first_difference, output_ids, prompt_digest
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.items import item_texts
from turnlog.domain.ports import InferenceEngine
from turnlog.domain.response import Response
from turnlog.domain.tokens import TokenIds

Output = TypeVar("Output", TokenIds, str)

DecodeTokens = Callable[[TokenIds], tuple[str, ...]]
"""The text of each token id on its own."""

_EXCERPT_CHARACTERS = 20


class Token(NamedTuple):
    """One token of an answer; `text` is its text on its own."""

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
        """Whether prompt and output are the same."""
        return self.same_prompt and self.difference is None


def check_checkable(original: Response, engine: InferenceEngine) -> None:
    """Refuse a check that could not be conclusive.

    Raises:
        InvalidRequestError: the turn never reached a model, ended without an answer to compare with, or the
            model has changed since.
    """
    started = original.started
    if started is None:
        raise InvalidRequestError(
            f"'{original.id}' never reached a model, so there is nothing to check. Re-run it instead.",
            code="nothing_to_check",
        )
    if started.model_fingerprint != engine.info.model_fingerprint:
        raise InvalidRequestError(
            f"'{original.created.model}' is not the model that generated '{original.id}' (the fingerprints "
            "differ), so a check cannot be identical. Re-run it instead.",
            param="model",
            code="model_fingerprint_differs",
        )
    if output_ids(original) is None and not original.items:
        raise InvalidRequestError(
            f"'{original.id}' has no output, so there is nothing to check. Re-run it instead.",
            code="nothing_to_check",
        )


def judge(original: Response, replay: Response, decode_tokens: DecodeTokens) -> Verdict:
    """Compare two turns that have ended, of which the original reached a model."""

    def token(ids: TokenIds) -> Token | None:
        return Token(ids[0], decode_tokens(ids[:1])[0]) if ids else None

    def excerpt(text: str) -> str | None:
        return text[:_EXCERPT_CHARACTERS] or None

    ids, ids_again = output_ids(original), output_ids(replay)
    if ids is None or ids_again is None:
        difference = _difference(_text(original), _text(replay), excerpt)
    else:
        difference = _difference(ids, ids_again, token)
    return Verdict(
        original=original.id,
        replay=replay.id,
        compared="text" if None in (ids, ids_again) else "tokens",
        same_prompt=prompt_digest(original) == prompt_digest(replay),
        alone=all(turn.ended is not None and turn.ended.alone is not False for turn in (original, replay)),
        difference=difference,
    )


def _difference(a: Output, b: Output, beginning: Callable[[Output], Token | str | None]) -> Difference | None:
    at = first_difference(a, b)
    return None if at is None else Difference(at, beginning(a[at:]), beginning(b[at:]))


def _text(response: Response) -> str:
    """The model's whole output, calls included, as one text."""
    return "\n".join(item_texts(response.items, call="{}({})"))

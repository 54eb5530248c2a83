"""Two turns side by side: what they were asked, how they were asked it, and what came of it."""

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from turnlog.domain.audit.seen import Seen
from turnlog.domain.events import TurnFailed
from turnlog.domain.items import CustomCallItem, FunctionCallItem, MessageItem, ReasoningItem
from turnlog.domain.messages import Message
from turnlog.domain.response import Response, api_status
from turnlog.domain.tokens import TokenIds, common_prefix, unpack

Side = TypeVar("Side")

MOST_DIFF_LINES = 5_000
"""Texts of more lines are not compared line by line, which could take minutes."""

FORM = ("tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "truncation", "max_tool_calls")
"""Fields of a `ResponseCreated` that set the form of the answer."""

_CONTEXT_CHARACTERS = 20
_PARAMETERS = ("model", "max_output_tokens", *FORM)


class Pair(Struct, Generic[Side], frozen=True):
    """What two turns have of one thing; `same` is None if one of them does not have it."""

    a: Side
    b: Side
    same: bool | None


class TextDifference(Struct, frozen=True):
    """Two texts: `first_difference` is the place of the first character that differs, None if none does.

    `diff` is a unified diff by lines, empty if the texts are the same or too long for one.
    """

    same: bool
    first_difference: int | None
    around: Pair[str] | None
    diff: list[str]


class TokenDifference(Struct, frozen=True):
    """Two outputs in token ids: how many, and where the first one is that differs, None if none does.

    Where one output goes on after the other has ended, the id of the shorter one is None.
    """

    same: bool
    count: Pair[int]
    first_difference: int | None
    ids: Pair[int | None] | None


class InputDifference(Struct, frozen=True):
    """What the model was to answer: `differs` names the parts that are not the same."""

    same: bool
    differs: list[str]


class Ended(Struct, frozen=True):
    """How a turn ended. `duration_ms` is from the request to the end."""

    status: str
    reason: str | None = None
    usage: dict[str, int | None] | None = None
    queue_ms: float | None = None
    first_token_ms: float | None = None
    duration_ms: int | None = None


class Comparison(Struct, frozen=True):
    """Two turns, `a` and `b`.

    `prompt` has the hashes of both prompts in token ids: equal ones prove that the model read the same.
    `parameters` are those that differ. `tokens` is None unless both outputs are known in ids of the same
    tokenizer.
    """

    ids: Pair[str]
    input: InputDifference
    prompt: Pair[str | None]
    parameters: dict[str, Pair[Any]]
    model_fingerprint: Pair[str | None]
    text: TextDifference
    reasoning: TextDifference
    tool_calls: Pair[list[list[str]]]
    tokens: TokenDifference | None
    ended: Pair[Ended]


def compare(a: Response, b: Response, seen: tuple[Seen | None, Seen | None] = (None, None)) -> Comparison:
    """Lay two turns beside each other.

    Args:
        seen: what each model read; unless both are known whole, only what each request brought is compared.
    """
    return Comparison(
        ids=_pair(a.id, b.id),
        input=_inputs(a, b, *seen),
        prompt=_pair(prompt_digest(a), prompt_digest(b)),
        parameters={
            name: pair
            for (name, left), (_, right) in zip(_parameters(a), _parameters(b), strict=True)
            if not (pair := Pair(left, right, left == right)).same
        },
        model_fingerprint=_pair(_fingerprint(a), _fingerprint(b)),
        text=_texts(_text(a), _text(b)),
        reasoning=_texts(_reasoning(a), _reasoning(b)),
        tool_calls=_pair(_calls(a), _calls(b)),
        tokens=_tokens(a, b),
        ended=_pair(_ended(a), _ended(b)),
    )


def prompt_digest(turn: Response) -> str | None:
    """The hash of the prompt in token ids; None if the turn has not started or has expired."""
    return (turn.started.prompt.digest or None) if turn.started else None


def output_ids(turn: Response) -> TokenIds | None:
    """The model's output in token ids, if known."""
    packed = turn.ended.output_ids if turn.ended else None
    return None if packed is None else unpack(packed)


def first_difference(a: TokenIds | str, b: TokenIds | str) -> int | None:
    """Where two outputs begin to differ, or where one of them ends; None if they are equal."""
    at = common_prefix(a, b)
    return None if at == len(a) == len(b) else at


def _pair(a: Side, b: Side) -> Pair[Side]:
    return Pair(a, b, None if a is None or b is None else a == b)


# ── what was asked ────────────────────────────────────────────────────────────────────────────────


def _inputs(a: Response, b: Response, a_seen: Seen | None, b_seen: Seen | None) -> InputDifference:
    left, right = a.created.input, b.created.input
    if a_seen and b_seen and not (a_seen.missing or b_seen.missing):
        left, right = tuple(a_seen.messages), tuple(b_seen.messages)
    differs = []
    if a.created.instructions != b.created.instructions:
        differs.append("instructions")
    differs += [
        f"messages[{index}].{name}"
        for index, (one, other) in enumerate(zip(left, right, strict=False))
        for name in Message.__struct_fields__
        if getattr(one, name) != getattr(other, name)
    ]
    if len(left) != len(right):
        differs.append(f"number of messages ({len(left)} and {len(right)})")
    return InputDifference(same=not differs, differs=differs)


def _fingerprint(turn: Response) -> str | None:
    return turn.started.model_fingerprint if turn.started else None


def _parameters(turn: Response) -> Iterator[tuple[str, Any]]:
    for name in _PARAMETERS:
        yield name, getattr(turn.created, name)
    for name in turn.created.sampling.__struct_fields__:
        yield name, getattr(turn.created.sampling, name)


# ── what came of it ───────────────────────────────────────────────────────────────────────────────


def _text(turn: Response) -> str:
    return "".join(item.text for item in turn.items if isinstance(item, MessageItem))


def _reasoning(turn: Response) -> str:
    return "".join(item.text for item in turn.items if isinstance(item, ReasoningItem))


def _calls(turn: Response) -> list[list[str]]:
    """Name and arguments of each call; ids differ from turn to turn and mean nothing."""
    calls: list[list[str]] = []
    for item in turn.items:
        match item:
            case FunctionCallItem(name=name, arguments=given) | CustomCallItem(name=name, input=given):
                calls.append([name, given])
    return calls


def _texts(a: str, b: str) -> TextDifference:
    place = first_difference(a, b)
    if place is None:
        return TextDifference(same=True, first_difference=None, around=None, diff=[])
    lines = a.splitlines(), b.splitlines()
    short = max(map(len, lines)) <= MOST_DIFF_LINES
    start, stop = max(0, place - _CONTEXT_CHARACTERS), place + _CONTEXT_CHARACTERS
    return TextDifference(
        same=False,
        first_difference=place,
        around=Pair(a[start:stop], b[start:stop], same=False),
        diff=list(unified_diff(*lines, "a", "b", lineterm="")) if short else [],
    )


def _tokens(a: Response, b: Response) -> TokenDifference | None:
    left, right = output_ids(a), output_ids(b)
    same_tokenizer = (
        a.started and b.started and a.started.tokenizer_fingerprint == b.started.tokenizer_fingerprint
    )
    if left is None or right is None or not same_tokenizer:
        return None
    place = first_difference(left, right)
    return TokenDifference(
        same=place is None,
        count=_pair(len(left), len(right)),
        first_difference=place,
        ids=None if place is None else Pair(_at(left, place), _at(right, place), same=False),
    )


def _at(ids: TokenIds, place: int) -> int | None:
    return ids[place] if place < len(ids) else None


def _ended(turn: Response) -> Ended:
    ended, status = turn.ended, api_status(turn)
    if ended is None:
        return Ended(status)
    return Ended(
        status=status,
        reason=ended.reason if isinstance(ended, TurnFailed) else None,
        usage=asdict(ended.usage),
        queue_ms=ended.timing.queue_ms,
        first_token_ms=ended.timing.first_token_ms,
        duration_ms=ended.at_ms - turn.created.at_ms,
    )

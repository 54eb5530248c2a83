"""A check: the same, or the first place where it differs."""

from contextlib import closing

import pytest
from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, FAILED, STARTED
from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.adapters.scripted.script import Script
from turnlog.domain.audit.check import Difference, Token, Verdict, check_checkable, judge
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import ItemClosed, ResponseEvent
from turnlog.domain.items import FunctionCallItem, MessageItem
from turnlog.domain.response import Response, fold
from turnlog.domain.tokens import TokenIds, pack, record_prompt


def said(*items: MessageItem | FunctionCallItem, ids: TokenIds | None = None, **started: object) -> Response:
    """A committed turn that answered with these items, in these token ids."""
    closed = [
        ItemClosed(at_ms=CREATED.at_ms + 20, output_index=at, item=item) for at, item in enumerate(items)
    ]
    ended = replace(COMMITTED, output_ids=None if ids is None else pack(ids), alone=True)
    story: list[ResponseEvent] = [CREATED, replace(STARTED, **started), *closed, ended]
    return fold(story)


def text(words: str) -> MessageItem:
    """A message."""
    return MessageItem("msg_1", "completed", words)


def decode_tokens(ids: TokenIds) -> tuple[str, ...]:
    """Each id as a letter."""
    return tuple(chr(96 + id_) for id_ in ids)


def test_the_same_tokens_are_identical() -> None:
    verdict = judge(said(text("abc"), ids=(1, 2, 3)), said(text("abc"), ids=(1, 2, 3)), decode_tokens)

    assert verdict == Verdict("resp_1", "resp_1", "tokens", True, True, None)
    assert verdict.identical


@pytest.mark.parametrize(
    ("again", "difference"),
    [
        ((1, 5, 3), Difference(1, Token(2, "b"), Token(5, "e"))),
        ((1, 2), Difference(2, Token(3, "c"), None)),
        ((1, 2, 3, 4), Difference(3, None, Token(4, "d"))),
    ],
)
def test_the_first_token_that_differs_is_named(again: TokenIds, difference: Difference) -> None:
    verdict = judge(said(text("abc"), ids=(1, 2, 3)), said(text("?"), ids=again), decode_tokens)

    assert verdict.difference == difference
    assert not verdict.identical


def test_an_engine_without_token_ids_is_compared_by_what_it_said_calls_included() -> None:
    call = FunctionCallItem("fc_1", "call_1", "add", '{"a":1}', "completed")
    other = replace(call, arguments='{"a":2}')

    verdict = judge(said(text("hi"), call), said(text("hi"), other), decode_tokens)

    assert (verdict.compared, verdict.difference) == ("text", Difference(12, "1})", "2})"))
    assert judge(said(text("hi"), call), said(text("hi"), call), decode_tokens).identical


def test_another_prompt_is_not_identical_even_if_the_answer_is() -> None:
    other = said(text("a"), ids=(1,), prompt=record_prompt((9,)))

    assert not judge(said(text("a"), ids=(1,)), other, decode_tokens).identical


def test_a_check_that_could_say_nothing_is_refused() -> None:
    with closing(ScriptedEngine(Script(turns=()))) as engine:
        fingerprint = engine.info.model_fingerprint
        for response, code in (
            (fold([CREATED, FAILED]), "nothing_to_check"),
            (fold([CREATED, replace(STARTED, model_fingerprint=fingerprint), FAILED]), "nothing_to_check"),
            (said(text("a")), "model_fingerprint_differs"),
        ):
            with pytest.raises(InvalidRequestError) as refusal:
                check_checkable(response, engine)
            assert refusal.value.code == code
        check_checkable(said(text("a"), model_fingerprint=fingerprint), engine)

"""What the model saw, rebuilt from the log."""

from typing import Any

from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, NOON_MS, STARTED
from turnlog.domain.audit.seen import PromptIds, Seen, prompt_ids, seen
from turnlog.domain.events import ItemClosed
from turnlog.domain.items import MessageItem
from turnlog.domain.messages import Message
from turnlog.domain.response import Response, fold_stored
from turnlog.domain.tokens import PromptRecord, pack, record_prompt


def turn(
    response_id: str,
    asked: str,
    answered: str,
    *,
    previous: str | None = None,
    prompt: PromptRecord | None = None,
    output_ids: tuple[int, ...] = (),
    truncated: int = 0,
    **fields: Any,
) -> Response:
    created = replace(
        CREATED,
        response_id=response_id,
        input=(Message("user", asked),),
        previous_response_id=previous,
        **fields,
    )
    started = replace(STARTED, prompt=prompt or STARTED.prompt, truncated_messages=truncated)
    item = MessageItem(f"msg_{response_id}", "completed", answered)
    closed = ItemClosed(at_ms=NOON_MS, output_index=0, item=item)
    return fold_stored([created, started, closed, replace(COMMITTED, output_ids=pack(output_ids))])


USER, ANSWER = Message("user", "q1"), Message("assistant", "a1")


def test_the_model_saw_the_instructions_the_conversation_and_the_request() -> None:
    chain = [turn("r1", "q1", "a1"), turn("r2", "q2", "a2", previous="r1", instructions="Be nice")]

    assert seen(chain) == Seen([Message("system", "Be nice"), USER, ANSWER, Message("user", "q2")])


def test_messages_that_were_left_out_are_not_among_them() -> None:
    chain = [turn("r1", "q1", "a1"), turn("r2", "q2", "a2", previous="r1", truncated=2, instructions="x")]

    assert seen(chain) == Seen([Message("system", "x"), Message("user", "q2")], left_out=2)


def test_a_conversation_whose_beginning_is_gone_says_so() -> None:
    chain = [turn("r2", "q2", "a2", previous="r1"), turn("r3", "q3", "a3", previous="r2", truncated=1)]

    found = seen(chain)

    assert found.missing == "r1"
    assert [message.content for message in found.messages] == ["q2", "a2", "q3"]


def test_a_prompt_is_rebuilt_through_the_responses_before() -> None:
    """It is told by what it shares with the turn before, all along the chain, and proved by its hash."""
    first = turn("r1", "q1", "a1", prompt=record_prompt((1, 2)), output_ids=(3, 4))
    second_ids = (1, 2, 3, 4, 5)
    second = turn(
        "r2", "q2", "a2", previous="r1", prompt=record_prompt(second_ids, "r1", (1, 2, 3, 4)), output_ids=(6,)
    )
    third_ids = (*second_ids, 6, 7, 8)
    third = turn("r3", "q3", "a3", previous="r2", prompt=record_prompt(third_ids, "r2", (*second_ids, 6)))

    assert prompt_ids(third, [first, second]) == PromptIds(third_ids)
    assert prompt_ids(second, [first]) == PromptIds(second_ids)
    assert prompt_ids(first, []) == PromptIds((1, 2))
    assert prompt_ids(third, [second]) == PromptIds(
        problem="The prompt is told by what it shares with 'r2', and that cannot be rebuilt."
    )


def test_a_prompt_that_was_removed_or_never_made_is_not_told() -> None:
    expired = turn("r1", "", "", prompt=PromptRecord(tokens=2, digest="", suffix=b""))
    waiting = fold_stored([CREATED])

    assert prompt_ids(expired, []) == PromptIds(problem="The prompt was removed when the response expired.")
    assert prompt_ids(waiting, []) == PromptIds(problem="The turn never reached the engine.")

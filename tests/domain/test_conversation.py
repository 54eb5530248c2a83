"""From a chain to what the model reads (D-09)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, STARTED
from turnlog.domain.conversation import (
    answers_among,
    completed,
    conversation,
    effective_instructions,
    placed,
    recorded_answers,
    token_log,
    with_answer,
)
from turnlog.domain.items import FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.messages import Image, Message, ToolCall
from turnlog.domain.response import Response, fold
from turnlog.domain.tokens import TokenIds, pack, record_prompt

HI = Message("user", "hi")
BYE = Message("user", "bye")
IDS = st.integers(0, 2**32 - 1)


def turn(*items: Item, asked: tuple[Message, ...] = (HI,), instructions: str | None = None) -> Response:
    """A committed turn with that input and output."""
    created = replace(CREATED, input=asked, instructions=instructions)
    response = fold([created, STARTED, COMMITTED])
    response.output.items = list(items)
    return response


ANSWERED = turn(MessageItem("msg_1", "completed", "Hello"))


def test_a_conversation_is_instructions_then_chain_then_the_requests_own_messages() -> None:
    """R-152, R-157."""
    assert conversation("Be kind.", [ANSWERED], [BYE]) == [
        Message("system", "Be kind."),
        HI,
        Message("assistant", "Hello"),
        BYE,
    ]


@pytest.mark.parametrize("instructions", [None, ""])
def test_empty_instructions_add_no_message(instructions: str | None) -> None:
    """R-152."""
    assert conversation(instructions, [], [HI]) == [HI]


def test_system_and_developer_texts_join_the_one_leading_system_message() -> None:
    """D-09, B21, B22."""
    earlier = turn(MessageItem("m", "completed", "ok"), asked=(Message("system", "Rule one."), HI))

    read = conversation("Be kind.", [earlier], [BYE, Message("system", "Rule two.")])

    assert read[0] == Message("system", "Be kind.\n\nRule one.\n\nRule two.")
    assert [message.role for message in read[1:]] == ["user", "assistant", "user"]


def test_instructions_of_earlier_turns_do_not_return() -> None:
    """R-181."""
    earlier = turn(MessageItem("m", "completed", "Hello"), instructions="Old.")

    assert conversation("New.", [earlier], [BYE])[0] == Message("system", "New.")


def test_an_answer_is_one_assistant_message_with_its_reasoning_and_calls() -> None:
    """R-179."""
    answered = turn(
        ReasoningItem("rs_1", "hm"),
        MessageItem("msg_2", "completed", "Sure."),
        FunctionCallItem("fc_3", "call_a", "add", "{}", "completed"),
    )

    assert conversation(None, [answered], [])[1] == Message(
        "assistant", "Sure.", reasoning="hm", tool_calls=(ToolCall("call_a", "add", "{}"),)
    )


def test_images_stay_in_the_history_byte_for_byte() -> None:
    """R-178, G-161: the codec's own property test shows that the log keeps their bytes."""
    images = (Image("image/png", b"\x89\x00"), Image("image/png", b"\xff"))
    seen = turn(MessageItem("msg_1", "completed", "ok"), asked=(replace(HI, images=images),))

    assert conversation(None, [seen], [BYE])[0].images == images


def test_an_empty_answer_stays_in_the_history() -> None:
    """R-180, G-160."""
    assert conversation(None, [turn(MessageItem("msg_1", "completed", ""))], [BYE]) == [
        HI,
        Message("assistant", ""),
        BYE,
    ]


def test_a_response_without_items_adds_no_answer() -> None:
    """R-180."""
    assert conversation(None, [turn()], [BYE]) == [HI, BYE]


@pytest.mark.parametrize(
    ("requested", "stored", "effective"),
    [
        ("new", "old", "new"),
        ("", "old", ""),
        (None, "old", "old"),
        (None, "", ""),
        (None, None, None),
    ],
)
def test_instructions_are_inherited_unless_the_request_gives_its_own(
    requested: str | None, stored: str | None, effective: str | None
) -> None:
    """R-149, R-150, R-156, G-083."""
    assert effective_instructions(requested, [turn(instructions=stored)]) == effective


def test_only_the_newest_response_passes_its_instructions_on() -> None:
    """R-151."""
    chain = [turn(instructions="first"), turn(instructions="second")]

    assert effective_instructions(None, chain) == "second"


def test_the_token_log_is_what_the_chain_read_and_wrote() -> None:
    first = fold(
        [
            CREATED,
            replace(STARTED, prompt=record_prompt((1, 2))),
            replace(COMMITTED, output_ids=pack((3,))),
        ]
    )
    second = fold(
        [
            replace(CREATED, response_id="resp_2", previous_response_id="resp_1"),
            replace(STARTED, prompt=record_prompt((1, 2, 3, 4), "resp_1", (1, 2, 3))),
            replace(COMMITTED, output_ids=pack((5, 6))),
        ]
    )

    assert token_log([first, second]) == (1, 2, 3, 4, 5, 6)


Turns = list[tuple[int, list[int], list[int]]]
"""Of each turn: how many ids of what came before it repeats at most, what it adds, and what it writes."""


@given(
    st.lists(st.tuples(st.integers(0, 12), st.lists(IDS, max_size=3), st.lists(IDS, max_size=3)), min_size=1)
)
def test_the_token_log_is_that_of_a_chain_rebuilt_turn_by_turn(turns: Turns) -> None:
    """Without the cost of it, however the turns cut what came before them."""
    chain: list[Response] = []
    before: TokenIds = ()
    base: str | None = None
    for number, (kept, added, written) in enumerate(turns):
        prompt = (*before[:kept], *added)
        created = replace(CREATED, response_id=f"resp_{number}", previous_response_id=base)
        started = replace(STARTED, prompt=record_prompt(prompt, base, before))
        chain.append(fold([created, started, replace(COMMITTED, output_ids=pack(written))]))
        before, base = (*prompt, *written), created.response_id

    assert token_log(chain) == before


def test_a_token_log_that_contradicts_itself_is_refused() -> None:
    orphan = fold([CREATED, replace(STARTED, prompt=record_prompt((1, 2), "resp_0", (1,))), COMMITTED])

    with pytest.raises(ValueError, match="resp_0"):
        token_log([orphan])


def said(text: str, ids: tuple[int, ...] | None, fingerprint: str | None = None) -> Response:
    """A committed turn that answered with a text, and wrote it in these ids."""
    started = STARTED if fingerprint is None else replace(STARTED, tokenizer_fingerprint=fingerprint)
    committed = replace(COMMITTED, output_ids=None if ids is None else pack(ids))
    response = fold([replace(CREATED, input=(HI,)), started, committed])
    response.output.items = [MessageItem("msg_1", "completed", text)]
    return response


def test_a_text_that_was_said_again_has_the_ids_of_each_time() -> None:
    """D-24: a prompt repeats what the model has written, also where it wrote one text in two ways."""
    chain = [said("yes", (1, 2)), said("no", (3,)), said("yes", (4,))]
    answers = recorded_answers(chain, STARTED.tokenizer_fingerprint)
    messages = conversation("Be kind.", chain, [BYE])

    assert placed(answers, messages) == {2: (1, 2), 4: (3,), 6: (4,)}


@pytest.mark.parametrize("unknown", [said("yes", None), said("yes", (9,), fingerprint="other")])
def test_a_time_whose_ids_are_not_known_keeps_its_place(unknown: Response) -> None:
    chain = [said("yes", (1,)), unknown, said("yes", (4,))]
    answers = recorded_answers(chain, STARTED.tokenizer_fingerprint)

    assert placed(answers, conversation(None, chain, [])) == {1: (1,), 5: (4,)}


def test_a_text_that_is_echoed_more_often_than_it_was_said_has_the_ids_of_the_last_time() -> None:
    yes = Message("assistant", "yes")

    assert placed({yes: ((1,), (2,))}, [HI, yes, HI, yes, HI, yes]) == {1: (1,), 3: (2,), 5: (2,)}


def test_what_a_client_has_put_into_the_models_mouth_keeps_its_place() -> None:
    """The model said it too, later, and only then in its own ids."""
    yes = Message("assistant", "yes")
    response = said("yes", (7, 8))
    response.created = replace(response.created, input=(HI, yes, BYE))
    answers = recorded_answers([response], STARTED.tokenizer_fingerprint)

    assert placed(answers, conversation(None, [response], [HI])) == {3: (7, 8)}
    assert completed(answers, {yes: ((5,), (6,), (9,))}) == {yes: ((5,), (7, 8), (9,))}


def test_the_answers_of_a_shorter_conversation_are_those_it_has() -> None:
    """A branch knows nothing of what is said later in the other one."""
    yes, no = Message("assistant", "yes"), Message("assistant", "no")
    known = {yes: ((1,), (2,)), no: ((3,),)}
    branch = [HI, yes, BYE]

    answers = answers_among(branch, placed(known, branch))

    assert answers == {yes: ((1,),)}
    assert with_answer(answers, said("yes", (7,)), (7,)) == {yes: ((1,), (7,))}

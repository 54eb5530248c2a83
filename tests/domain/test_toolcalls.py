"""Who may answer which call, and in which order the model reads the outputs."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.toolcalls import (
    canonical_history,
    canonical_input,
    check_call_ids,
    check_echoes,
    check_outputs,
    outstanding_calls,
)

case = pytest.param

USER = Message("user", "hi")
ANSWER = Message("assistant", "Hello")
SYSTEM = Message("system", "Be kind.")


def calls(*call_ids: str) -> Message:
    """An assistant message that calls once for each id."""
    return Message("assistant", "", tool_calls=tuple(ToolCall(each, "add", "{}") for each in call_ids))


def output(call_id: str | None, content: str = "3") -> Message:
    """The client's answer to a call."""
    return Message("tool", content, call_id=call_id)


A, B, X = output("a"), output("b"), output("x")
ONE_CALL = (USER, calls("a"))
TWO_CALLS = (USER, calls("a", "b"))


def refuses(code: str, *fragments: str) -> Callable[[InvalidRequestError], bool]:
    """Whether an error has that code, blames the input and says all of these."""
    return lambda error: (
        (error.code, error.param) == (code, "input") and all(fragment in str(error) for fragment in fragments)
    )


def refused(code: str, *fragments: str) -> pytest.RaisesExc[InvalidRequestError]:
    """The refusal that is expected."""
    return pytest.raises(InvalidRequestError, check=refuses(code, *fragments))


# Echoed calls (R-182 … R-187)


@pytest.mark.parametrize(
    ("echoed", "stored", "code", "said"),
    [
        case("call_x", (USER, calls("call_a")), "unknown_call_id", "'call_x'", id="R-183 G-101"),
        case("a", (USER, ANSWER), "unknown_call_id", "'a'", id="R-183 the last answer has no calls"),
        case("a", (*ONE_CALL, A, ANSWER), "unknown_call_id", "'a'", id="R-183 a call of an older answer"),
        case("a", (), "unknown_call_id", "'a'", id="R-183 nothing is stored"),
        case(None, ONE_CALL, "missing_call_id", "no call_id", id="R-183 no id"),
        case("", ONE_CALL, "missing_call_id", "no call_id", id="R-183 an empty id"),
    ],
)
def test_an_echo_must_be_a_call_of_the_last_stored_answer(
    echoed: str | None, stored: Sequence[Message], code: str, said: str
) -> None:
    with refused(code, said):
        check_echoes([echoed], stored)


def test_one_foreign_echo_among_good_ones_is_refused() -> None:
    """R-183, R-211."""
    with refused("unknown_call_id", "function_call 1", "'x'"):
        check_echoes(["a", "x", "b"], TWO_CALLS)


@pytest.mark.parametrize(
    "stored",
    [
        case(TWO_CALLS, id="R-183"),
        case((*TWO_CALLS, A, B), id="R-185 answered already"),
        case((*TWO_CALLS, A, B, USER, SYSTEM), id="R-185 answered long ago"),
    ],
)
def test_an_echo_of_the_last_stored_answer_is_accepted(stored: Sequence[Message]) -> None:
    check_echoes(["b", "a", "a"], stored)


def test_the_stored_call_stands_whatever_its_echo_said() -> None:
    """R-184, G-102: an echo is known by its id alone, then left out."""
    stored = (USER, Message("assistant", "", tool_calls=(ToolCall("a", "add", '{"x": 1}'),)))

    check_echoes(["a"], stored)
    own = canonical_input(stored, [A], continues=True)

    assert canonical_history([*stored, *own]) == [*stored, A]


def test_an_echo_of_one_call_does_not_shrink_the_fan_out() -> None:
    """G-103, R-189."""
    check_echoes(["a"], TWO_CALLS)

    with refused("missing_tool_output", "1 of 2", "'b'"):
        canonical_input(TWO_CALLS, [A], continues=True)


def test_an_echoed_message_must_not_come_before_the_outputs() -> None:
    """R-186, R-191."""
    with refused("unexpected_tool_output", "messages[1] of the input"):
        canonical_input(ONE_CALL, [ANSWER, A], continues=True)

    assert canonical_input(ONE_CALL, [A, ANSWER], continues=True) == (A, ANSWER)


def test_without_a_previous_response_calls_are_ordinary_history() -> None:
    """R-182, R-187."""
    own = (*ONE_CALL, A)

    assert canonical_input((), own, continues=False) == own


# Call ids of outputs


@pytest.mark.parametrize("call_id", [None, ""])
@pytest.mark.parametrize("continues", [True, False])
def test_every_output_needs_a_call_id(call_id: str | None, continues: bool) -> None:
    """R-169, G-104."""
    own = [A, B, output(call_id)]

    with refused("missing_call_id", "messages[2] of the input", "call_id"):
        check_call_ids(own)
    with refused("missing_call_id"):
        canonical_input(TWO_CALLS, own, continues=continues)


# The gate of a continuation (R-188 … R-199)


@pytest.mark.parametrize(
    ("stored", "outstanding"),
    [
        case(TWO_CALLS, ("a", "b"), id="R-189 in order"),
        case((*TWO_CALLS, B), ("a",), id="R-189 minus the answered"),
        case((*TWO_CALLS, SYSTEM), ("a", "b"), id="R-189 a system message answers nothing"),
        case((), (), id="R-189 no history"),
        case((USER,), (), id="R-189 no answer"),
        case((USER, ANSWER), (), id="R-189 no calls"),
        case((USER, calls("")), (), id="R-189 no ids"),
        case((USER, calls("", "a")), ("a",), id="R-189 one id"),
        case((*TWO_CALLS, A, B), (), id="R-189 all answered"),
        case((*TWO_CALLS, ANSWER), (), id="R-189 only the last answer counts"),
        case((*ONE_CALL, A, calls("a")), ("a",), id="R-189 an id used again"),
    ],
)
def test_outstanding_are_the_unanswered_calls_of_the_last_stored_answer(
    stored: Sequence[Message], outstanding: tuple[str, ...]
) -> None:
    assert outstanding_calls(stored) == outstanding


@pytest.mark.parametrize(
    ("stored", "own", "code", "said"),
    [
        case((USER, ANSWER), [A], "unexpected_tool_output", ["'a'", "messages[0]"], id="R-190 G-105"),
        case((*ONE_CALL, A), [USER, A], "unexpected_tool_output", ["messages[1]"], id="R-190 answered"),
        case(TWO_CALLS, [A, USER, B], "unexpected_tool_output", ["'b'", "messages[2]"], id="R-191 G-107"),
        case(ONE_CALL, [USER, A], "unexpected_tool_output", ["'a'", "messages[1]"], id="R-191"),
        case(ONE_CALL, [USER], "missing_tool_output", ["1 of 1 calls", "'a'"], id="R-192 G-108 one"),
        case(TWO_CALLS, [USER], "missing_tool_output", ["2 of 2 calls", "'a', 'b'"], id="R-192 G-108 two"),
        case(TWO_CALLS, [], "missing_tool_output", ["2 of 2 calls", "'a', 'b'"], id="R-192 no message"),
        case(TWO_CALLS, [A, A], "duplicate_tool_output", ["'a'", "messages[1]"], id="R-193 G-110"),
        case(ONE_CALL, [X], "unknown_call_id", ["'x'", "'a'", "messages[0]"], id="R-194 G-106"),
        case(TWO_CALLS, [A, X], "unknown_call_id", ["'x'", "'a', 'b'"], id="R-194 names the set"),
        case((*TWO_CALLS, B), [B], "unknown_call_id", ["'b'", "'a'"], id="R-194 answered already"),
        case(TWO_CALLS, [A], "missing_tool_output", ["1 of 2 calls", "'b'"], id="R-195 G-109"),
        case(TWO_CALLS, [B, USER], "missing_tool_output", ["'a'"], id="R-195 then a user message"),
    ],
)
def test_a_continuation_answers_exactly_the_outstanding_calls_first(
    stored: Sequence[Message], own: Sequence[Message], code: str, said: list[str]
) -> None:
    with refused(code, *said):
        check_outputs(stored, own)
    with refused(code, *said):
        canonical_input(stored, own, continues=True)


@pytest.mark.parametrize(
    ("own", "code"),
    [
        case([USER, X, X], "unexpected_tool_output", id="R-196 place before ids"),
        case([A, A, USER, B], "unexpected_tool_output", id="R-196 place before duplicates"),
        case([A, A, X], "duplicate_tool_output", id="R-196 the duplicate comes first"),
        case([A, X, A], "unknown_call_id", id="R-196 the unknown one comes first"),
        case([X, X], "unknown_call_id", id="R-196 an unknown id is not seen twice"),
        case([A, X], "unknown_call_id", id="R-196 ids before missing"),
    ],
)
def test_the_first_rule_that_is_broken_speaks(own: Sequence[Message], code: str) -> None:
    with refused(code):
        check_outputs(TWO_CALLS, own)


def test_the_gates_run_in_order() -> None:
    """R-188: call ids, then the continuation's gate, then the whole history."""
    broken = (A, USER, ANSWER)

    with refused("missing_call_id"):
        canonical_input(broken, [B, output(None)], continues=True)
    with refused("unexpected_tool_output", "'b'", "messages[0] of the input"):
        canonical_input(broken, [B], continues=True)
    with refused("unexpected_tool_output", "'a'", "messages[0] of the stored history"):
        canonical_input(broken, [USER], continues=True)


@pytest.mark.parametrize(
    "own",
    [
        case((A, B), id="R-197 outputs alone"),
        case((A, B, USER), id="R-197 a user message"),
        case((A, B, ANSWER, USER), id="R-197 R-186 an echoed message after the outputs"),
        case((SYSTEM, A, SYSTEM, B, USER), id="R-191 D-09 system messages between"),
    ],
)
def test_other_messages_may_follow_the_outputs(own: tuple[Message, ...]) -> None:
    assert canonical_input(TWO_CALLS, own, continues=True) == own


def test_outputs_are_recorded_in_the_order_of_the_stored_calls() -> None:
    """R-198, G-111."""
    failed = Message("tool", "no", call_id="b", is_error=True)

    assert canonical_input(TWO_CALLS, [failed, A, USER], continues=True) == (A, failed, USER)


def test_system_messages_keep_their_places_among_reordered_outputs() -> None:
    """R-198, D-09."""
    assert canonical_input(TWO_CALLS, [B, SYSTEM, A], continues=True) == (A, SYSTEM, B)


def test_a_call_answered_in_an_earlier_turn_is_not_asked_for_again() -> None:
    """G-116, R-189."""
    assert canonical_input((*ONE_CALL, A, ANSWER), [USER], continues=True) == (USER,)
    assert canonical_input((*ONE_CALL, A), [USER], continues=True) == (USER,)


def test_a_half_answered_fan_out_is_completed_and_only_the_requests_part_is_its_own() -> None:
    """R-189, R-198, R-210."""
    stored = (*TWO_CALLS, B)

    assert canonical_input(stored, [A, USER], continues=True) == (A, USER)
    assert canonical_history([*stored, A, USER]) == [*TWO_CALLS, A, B, USER]


# The walk over the whole history


@pytest.mark.parametrize(
    ("history", "code", "said"),
    [
        case([A], "unexpected_tool_output", ["'a'", "messages[0]"], id="R-201 at the start"),
        case([USER, A], "unexpected_tool_output", ["'a'", "messages[1]"], id="R-201 after a user message"),
        case([USER, ANSWER, A], "unexpected_tool_output", ["messages[2]"], id="R-201 after a plain answer"),
        case(
            [*ONE_CALL, A, USER, A],
            "unexpected_tool_output",
            ["messages[4]"],
            id="R-201 after its block ended",
        ),
        case([USER, calls("a", ""), A], "missing_call_id", ["function_call 1", "messages[1]"], id="R-202"),
        case([USER, calls("a", "a"), A], "duplicate_call_id", ["'a'", "messages[1]"], id="R-203"),
        case([*ONE_CALL, output(None)], "missing_call_id", ["messages[2]"], id="R-204"),
        case([*ONE_CALL, output("")], "missing_call_id", ["messages[2]"], id="R-204 an empty id"),
        case([*ONE_CALL, X], "unknown_call_id", ["'x'", "'a'", "messages[2]"], id="R-205"),
        case(
            [*ONE_CALL, A, calls("b"), A],
            "unknown_call_id",
            ["'a'", "'b'", "messages[4]"],
            id="R-205 a call before",
        ),
        case([*TWO_CALLS, A, A], "duplicate_tool_output", ["'a'", "messages[3]"], id="R-206"),
        case([*ONE_CALL, A, A], "duplicate_tool_output", ["'a'", "messages[3]"], id="R-206 one too many"),
        case(TWO_CALLS, "missing_tool_output", ["messages[1]", "'a', 'b'"], id="R-207 G-114"),
        case(
            [*ONE_CALL, SYSTEM], "missing_tool_output", ["'a'"], id="R-207 D-09 only a system message after"
        ),
        case([*ONE_CALL, USER, A], "missing_tool_output", ["messages[1]", "'a'"], id="R-208"),
        case([*ONE_CALL, ANSWER, A], "missing_tool_output", ["messages[1]", "'a'"], id="R-208 an answer"),
        case([*TWO_CALLS, B, USER], "missing_tool_output", ["1 of 2", "'a'"], id="R-209"),
        case([*TWO_CALLS, B], "missing_tool_output", ["1 of 2", "'a'"], id="R-209 at the end"),
    ],
)
def test_a_malformed_history_is_refused_with_index_and_ids(
    history: Sequence[Message], code: str, said: list[str]
) -> None:
    """R-211."""
    with refused(code, *said):
        canonical_history(history)


@pytest.mark.parametrize("own", [case([A], id="G-115 orphan"), case([*ONE_CALL, X], id="G-115 unknown")])
def test_refusals_speak_the_words_of_this_api(own: Sequence[Message]) -> None:
    """R-211, G-115."""
    with pytest.raises(InvalidRequestError, match=r"function_call_output .*call_id") as refusal:
        canonical_input((), own, continues=False)

    assert "tool_result" not in str(refusal.value)
    assert "tool_use" not in str(refusal.value)


@pytest.mark.parametrize("position", range(6))
def test_a_system_message_anywhere_breaks_no_block(position: int) -> None:
    """R-201, R-208, R-209, D-09."""
    history = [*TWO_CALLS, A, B, ANSWER]
    history.insert(position, SYSTEM)

    assert canonical_history(history) == history


def test_a_request_without_previous_response_is_put_in_order_too() -> None:
    """R-200, R-210, G-112."""
    assert canonical_input((), [*TWO_CALLS, B, A, USER], continues=False) == (*TWO_CALLS, A, B, USER)


def test_stored_blocks_are_walked_on_a_continuation_too() -> None:
    """R-200."""
    with refused("missing_tool_output", "messages[1] of the stored history", "'a'"):
        canonical_input((*ONE_CALL, USER, ANSWER), [USER], continues=True)
    with refused("missing_tool_output", "messages[1] of the input", "'a'"):
        canonical_input((USER, ANSWER), ONE_CALL, continues=True)


def test_each_block_is_put_in_order_on_its_own() -> None:
    """R-199, G-113: the same ids in both fan-outs do not mix."""
    first_a, first_b = output("a", "1"), output("b", "2")
    stored = (*TWO_CALLS, first_b, first_a, calls("b", "a"))

    own = canonical_input(stored, [A, B, USER], continues=True)

    assert own == (B, A, USER)
    assert canonical_history([*stored, *own]) == [*TWO_CALLS, first_a, first_b, calls("b", "a"), B, A, USER]


def test_several_resolved_tool_turns_pass_unchanged() -> None:
    """R-212, G-117."""
    own = (*TWO_CALLS, A, B, ANSWER, *ONE_CALL, A, calls("c"), output("c"), ANSWER, USER)

    assert canonical_input((), own, continues=False) == own


# Laws

call_ids = st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True)
plain = st.sampled_from([USER, ANSWER, SYSTEM]).map(lambda message: [message])
fan_outs = call_ids.map(lambda ids: [calls(*ids), *(output(each, f"answer to {each}") for each in ids)])
histories = st.lists(plain | fan_outs, max_size=6)


@st.composite
def shuffled(draw: st.DrawFn, ordered: list[list[Message]]) -> list[Message]:
    """The same history with the outputs of each fan-out in any order."""
    messages: list[Message] = []
    for step in ordered:
        messages += [step[0], *draw(st.permutations(step[1:]))]
    return messages


@given(histories, st.data())
def test_the_order_of_the_outputs_does_not_matter(ordered: list[list[Message]], data: st.DataObject) -> None:
    """R-210, R-212: any order of a fan-out's outputs becomes that of its calls, which then stays."""
    canonical = [message for step in ordered for message in step]
    given_order = data.draw(shuffled(ordered))

    assert canonical_history(given_order) == canonical
    assert canonical_history(canonical) == canonical
    assert canonical_input((), given_order, continues=False) == tuple(canonical)


@given(histories, call_ids, st.data())
def test_the_order_of_the_outputs_of_a_continuation_does_not_matter(
    ordered: list[list[Message]], ids: list[str], data: st.DataObject
) -> None:
    """R-198, R-199, R-212."""
    stored = [*data.draw(shuffled(ordered)), calls(*ids)]
    canonical = tuple(output(each) for each in ids)
    own = data.draw(st.permutations(canonical))

    assert canonical_input(stored, own, continues=True) == canonical
    assert canonical_input(stored, canonical, continues=True) == canonical


@given(st.lists(st.sampled_from([USER, ANSWER, SYSTEM, A, B, X, calls("a"), calls("a", "b")]), max_size=8))
def test_a_history_is_refused_or_only_reordered(messages: list[Message]) -> None:
    """R-199, R-212: canonical is canonical for good."""
    try:
        canonical = canonical_history(messages)
    except InvalidRequestError as error:
        assert refuses(error.code)(error)
    else:
        assert sorted(map(repr, canonical)) == sorted(map(repr, messages))
        assert canonical_history(canonical) == canonical

"""Which tool calls a request may answer, and in which order the model reads the outputs (R-182 … R-212).

Engines pair outputs with calls by position, so a wrong, missing or swapped output is refused or put right
here, before anything is recorded. System messages stand outside the conversation's order (they are moved to
its front, D-09), so every rule looks through them and none of them is moved here.

A refusal names a message by its index among the request's own messages, or among the stored ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Message, ToolCall

ToolCallCode = Literal[
    "missing_call_id",
    "duplicate_call_id",
    "unknown_call_id",
    "unexpected_tool_output",
    "duplicate_tool_output",
    "missing_tool_output",
]


def canonical_input(
    stored: Sequence[Message], own: Sequence[Message], *, continues: bool
) -> tuple[Message, ...]:
    """The request's own messages with every fan-out answered whole and in the order of its calls (R-188).

    Args:
        stored: the chain's messages, oldest first.
        own: the request's messages; echoed calls were checked (`check_echoes`) and left out.
        continues: whether the request names a previous response.

    Raises:
        InvalidRequestError: a rule of the section is broken; `param` is "input", `code` a `ToolCallCode`.
    """
    check_call_ids(own)
    if continues:
        check_outputs(stored, own)
    messages = [*stored, *own]
    return tuple(messages[i] for i in _canonical_order(messages, len(stored)) if i >= len(stored))


def canonical_history(messages: Sequence[Message]) -> list[Message]:
    """The whole conversation with each block of outputs in the order of its calls (R-200, R-210, R-212).

    Raises:
        InvalidRequestError: a call has no output, or an output no call, directly beside it.
    """
    return [messages[i] for i in _canonical_order(messages)]


def check_echoes(echoed: Iterable[str | None], stored: Sequence[Message]) -> None:
    """Refuse calls that a continuation sends back but the last answer did not make (R-183).

    A call that is answered already may still be echoed (R-185). Names and arguments are not compared: the
    echoes are then left out and the stored calls stand (R-184).

    Args:
        echoed: the `call_id` of each call among the request's items; None if it has none.
        stored: the chain's messages, oldest first.
    """
    calls, _ = _last_calls(stored)
    owned = {call.id for call in calls}
    for index, call_id in enumerate(echoed):
        if not call_id:
            raise _refusal("missing_call_id", f"Echoed function_call {index} has no call_id.")
        if call_id not in owned:
            raise _refusal(
                "unknown_call_id",
                f"Echoed function_call {index} has call_id {call_id!r}, which the last answer did not make.",
            )


def check_call_ids(own: Sequence[Message]) -> None:
    """Refuse outputs that do not name the call they answer (R-169)."""
    for index, message in enumerate(own):
        if message.role == "tool":
            _call_id(message, _place(index))


def outstanding_calls(stored: Sequence[Message]) -> tuple[str, ...]:
    """The ids of the last answer's calls that have no output yet, in the order of the calls (R-189)."""
    calls, later = _last_calls(stored)
    answered = {message.call_id for message in later if message.role == "tool"}
    return tuple(dict.fromkeys(call.id for call in calls if call.id and call.id not in answered))


def check_outputs(stored: Sequence[Message], own: Sequence[Message]) -> None:
    """Refuse a continuation that does not begin with the outputs of all outstanding calls, and no others.

    If several rules are broken, the first of R-190, R-191, R-192, R-193, R-194 and R-195 speaks (R-196).
    Further messages may follow (R-197).
    """
    outstanding = outstanding_calls(stored)
    spoken = [index for index, message in enumerate(own) if message.role != "system"]
    outputs = [index for index in spoken if own[index].role == "tool"]
    if outputs and not outstanding:
        raise _refusal(
            "unexpected_tool_output",
            f"{_named(own[outputs[0]], _place(outputs[0]))} answers nothing: the previous response made no "
            "calls, or all of them are answered.",
        )
    for index, leading in zip(outputs, spoken, strict=False):
        if index != leading:
            raise _refusal(
                "unexpected_tool_output",
                f"{_named(own[index], _place(index))} comes after another message. All outputs of the "
                f"fan-out must lead the input: {_listed(outstanding)}. Leave out messages and reasoning of "
                "the previous response, or send them after the outputs.",
            )
    _match(outstanding, [(_place(index), own[index]) for index in outputs], "the previous response")


def _canonical_order(messages: Sequence[Message], stored: int = 0) -> list[int]:
    """The indexes of `messages` in canonical order; the first `stored` messages come from the chain."""
    order = list(range(len(messages)))
    for caller, block in _blocks(messages):
        calls = messages[caller].tool_calls if caller is not None else ()
        if calls:
            assert caller is not None
            ids = _declared(calls, _place(caller, stored))
            _match(ids, [(_place(i, stored), messages[i]) for i in block], _place(caller, stored))
            found = {messages[i].call_id: i for i in block}
            for slot, call_id in zip(block, ids, strict=True):
                order[slot] = found[call_id]
        elif block:
            raise _refusal(
                "unexpected_tool_output",
                f"{_named(messages[block[0]], _place(block[0], stored))} does not follow a function_call. "
                "Outputs stand directly after the calls they answer.",
            )
    return order


def _blocks(messages: Sequence[Message]) -> Iterator[tuple[int | None, list[int]]]:
    """The index of each user or assistant message and those of the outputs right behind it.

    The first pair has no such message: its outputs open the conversation.
    """
    before: int | None = None
    block: list[int] = []
    for index, message in enumerate(messages):
        match message.role:
            case "tool":
                block.append(index)
            case "user" | "assistant":
                yield before, block
                before, block = index, []
    yield before, block


def _declared(calls: Sequence[ToolCall], place: str) -> list[str]:
    """The ids of one message's calls, each there and each its own (R-202, R-203)."""
    ids: dict[str, None] = {}
    for position, call in enumerate(calls):
        if not call.id:
            raise _refusal("missing_call_id", f"function_call {position} of {place} has no call_id.")
        if call.id in ids:
            raise _refusal(
                "duplicate_call_id", f"function_call {position} of {place} repeats call_id {call.id!r}."
            )
        ids[call.id] = None
    return list(ids)


def _match(calls: Sequence[str], outputs: Iterable[tuple[str, Message]], caller: str) -> None:
    """Refuse outputs that are not exactly one for each call, in any order.

    Args:
        calls: the ids to be answered.
        outputs: where each output stands, and the output.
        caller: whose calls these are, in words.
    """
    expected, answered = set(calls), set()
    for place, output in outputs:
        call_id = _call_id(output, place)
        if call_id in answered:
            raise _refusal("duplicate_tool_output", f"{_named(output, place)} answers that call again.")
        if call_id not in expected:
            raise _refusal(
                "unknown_call_id",
                f"{_named(output, place)} answers none of the calls of {caller} that wait for an output: "
                f"{_listed(calls)}.",
            )
        answered.add(call_id)
    if missing := [call_id for call_id in calls if call_id not in answered]:
        raise _refusal(
            "missing_tool_output",
            f"{len(missing)} of {len(calls)} calls of {caller} have no function_call_output, by call_id: "
            f"{_listed(missing)}. All calls of a fan-out are answered together, before any other message.",
        )


def _call_id(output: Message, place: str) -> str:
    if not output.call_id:
        raise _refusal("missing_call_id", f"function_call_output at {place} has no call_id.")
    return output.call_id


def _named(output: Message, place: str) -> str:
    return f"function_call_output with call_id {output.call_id!r} at {place}"


def _last_calls(stored: Sequence[Message]) -> tuple[Sequence[ToolCall], Sequence[Message]]:
    """The calls of the last assistant message, and the messages after it."""
    for index in reversed(range(len(stored))):
        if stored[index].role == "assistant":
            return stored[index].tool_calls, stored[index + 1 :]
    return (), ()


def _place(index: int, stored: int = 0) -> str:
    """Where a message stands, as the client can find it (R-211)."""
    if index < stored:
        return f"messages[{index}] of the stored history"
    return f"messages[{index - stored}] of the input"


def _listed(call_ids: Iterable[str]) -> str:
    return ", ".join(map(repr, call_ids))


def _refusal(code: ToolCallCode, message: str) -> InvalidRequestError:
    return InvalidRequestError(message, param="input", code=code)

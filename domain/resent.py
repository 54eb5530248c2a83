"""What a continuation sends again of the conversation that its chain has already (D-39).

Calls and outputs are known by their `call_id` and items of the log by their id, wherever they stand. Messages
without an id say nothing about where they are from: they are the chain's own only if the request begins with
its whole transcript. Whoever says "yes" twice is heard twice.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from turnlog.domain.characters import read_json
from turnlog.domain.messages import Message
from turnlog.domain.toolcalls import outstanding_calls

Step = tuple[Any, ...]
"""One thing that was said."""


class Sent(Struct, frozen=True):
    """An input item as a message, and the id it was sent with, if it was."""

    message: Message
    id: str | None = None


def new_messages(
    sent: Sequence[Sent], history: Sequence[Message], item_ids: Collection[str]
) -> list[Message]:
    """The messages that are new to the chain, outputs first.

    What stays may still break a rule about tool calls, such as an output that answers no call.

    Args:
        history: what the chain says, oldest first.
        item_ids: the ids of the chain's output items.
    """
    rest = sent[_transcript_length(sent, history) :]
    called = {call.id for message in history for call in message.tool_calls}
    outstanding = set(outstanding_calls(history))
    known_outputs = Counter(_output(message) for message in history if message.role == "tool")
    outputs: list[Message] = []
    others: list[Message] = []
    for each in rest:
        message = each.message
        is_echo = message.tool_calls and all(call.id in called for call in message.tool_calls)
        if is_echo or each.id in item_ids:
            continue
        if message.role != "tool":
            others.append(message)
        elif message.call_id not in outstanding and known_outputs[_output(message)]:
            known_outputs[_output(message)] -= 1
        else:
            outputs.append(message)
    return [*outputs, *others]


def transcript(messages: Sequence[Message]) -> list[list[Step]]:
    """What a conversation says, in a form that is equal for all ways to send the same."""
    return [step for _, step in _steps(enumerate(messages))]


def _output(message: Message) -> tuple[str | None, str]:
    return message.call_id, message.content


def _transcript_length(sent: Sequence[Sent], history: Sequence[Message]) -> int:
    """How many items are the chain's transcript; 0 if the request does not begin with all of it."""
    known = transcript(history)
    told = _steps((index, each.message) for index, each in enumerate(sent))
    if not known or [step for _, step in told[: len(known)]] != known:
        return 0
    last, _ = told[len(known) - 1]
    return last + 1


def _steps(messages: Iterable[tuple[int, Message]]) -> list[tuple[int, list[Step]]]:
    """What a conversation says, so that two can be compared: steps with the index of the message they end in.

    Reasoning is left out, texts in a row are one, and so are the outputs of a fan-out, in whatever order.
    """
    runs: list[tuple[int, list[Step]]] = []
    for index, message in messages:
        for step in _said(message):
            if runs and step[0] in ("text", "output") and runs[-1][1][0][0] == step[0]:
                runs[-1][1].append(step)
                runs[-1] = index, runs[-1][1]
            else:
                runs.append((index, [step]))
    return [(index, _joined(run)) for index, run in runs]


def _joined(run: list[Step]) -> list[Step]:
    match run:
        case [("text", *_), *_]:
            return [("text", "".join(text for _, text in run))]
        case [("output", *_), *_]:
            return sorted(run)
        case _:
            return run


def _said(message: Message) -> Iterator[Step]:
    match message.role:
        case "assistant":
            if message.content:
                yield "text", message.content
            for call in message.tool_calls:
                yield "call", call.id, call.name, _arguments(call.arguments)
        case "tool":
            yield "output", message.call_id or "", message.content
        case role:
            yield role, message.content, message.images


def _arguments(text: str) -> Any:
    """The arguments as JSON says them; those that are none as they are."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text

"""What the model saw in a turn: the messages of its conversation, and the prompt in the model's own ids."""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from turnlog.domain.conversation import Chain, conversation, token_log
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import Message
from turnlog.domain.response import Response
from turnlog.domain.tokens import TokenIds, rebuild_prompt
from turnlog.domain.toolcalls import canonical_history
from turnlog.domain.truncation import shorter_histories


class Seen(Struct, frozen=True):
    """The messages a model read, in order.

    `left_out` is how many of the oldest were left out so that the rest fitted; `missing` the response that
    the conversation goes back to and that is gone, so that what was said up to it is not among the messages.
    """

    messages: list[Message]
    left_out: int = 0
    missing: str | None = None


def seen(chain: Chain) -> Seen:
    """What the model saw in the last turn of the chain, which may begin in the midst of a conversation."""
    *earlier, turn = chain
    messages = conversation(turn.created.instructions, earlier, turn.created.input)
    missing = chain[0].created.previous_response_id
    if missing:
        return Seen(_in_order(messages), missing=missing)
    messages = _in_order(messages)
    left_out = turn.started.truncated_messages if turn.started else 0
    if not left_out:
        return Seen(messages)
    candidates = shorter_histories(messages)
    index = bisect_left(candidates, left_out, key=lambda each: len(messages) - len(each))
    return Seen(candidates[min(index, len(candidates) - 1)], left_out)


def _in_order(messages: list[Message]) -> list[Message]:
    try:
        return canonical_history(messages)
    except InvalidRequestError:  # calls and outputs of which some are gone
        return messages


class PromptIds(Struct, frozen=True):
    """A prompt in token ids, or the `problem` why they cannot be told."""

    ids: TokenIds | None = None
    problem: str | None = None


def prompt_ids(turn: Response, earlier: Sequence[Response]) -> PromptIds:
    """The prompt of a turn in token ids, rebuilt from the log and proved by its hash.

    Args:
        earlier: the responses before it, oldest first.
    """
    if turn.started is None:
        return PromptIds(problem="The turn never reached the engine.")
    record = turn.started.prompt
    if not record.digest:
        return PromptIds(problem="The prompt was removed when the response expired.")
    try:
        return PromptIds(rebuild_prompt(record, token_log(earlier) if record.base else ()))
    except ValueError:
        return PromptIds(
            problem=f"The prompt is told by what it shares with '{record.base}', and that cannot be rebuilt."
        )

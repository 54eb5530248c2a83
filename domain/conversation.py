"""From a chain of responses to the model's next input (R-149 … R-158, R-179 … R-181, D-09)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from turnlog.domain.events import TurnCommitted
from turnlog.domain.inputs import join, piece_of
from turnlog.domain.messages import Message
from turnlog.domain.response import Response
from turnlog.domain.tokens import ID_BYTES, TokenIds, checked_prompt, unpack

Chain = Sequence[Response]
"""Committed responses, oldest first, each continuing the one before it."""

Answers = Mapping[Message, tuple[TokenIds, ...]]
"""Answers with the ids that the model sampled, one entry per occurrence: the same text may be sampled as
different ids. Unknown ids are empty.
"""


def effective_instructions(requested: str | None, chain: Chain) -> str | None:
    """The request's own instructions, "" included, else those in force at the end of the chain (R-149)."""
    if requested is not None or not chain:
        return requested
    return chain[-1].created.instructions


def conversation(instructions: str | None, chain: Chain, own: Sequence[Message]) -> list[Message]:
    """The messages the model reads: one leading system message, the chain, the request's own (R-157).

    Instructions, system and developer texts are joined into that one message, wherever they stood,
    because templates refuse any other place (D-09). Instructions of earlier turns do not return (R-181).
    """
    messages = [message for response in chain for message in replay(response)]
    messages += own
    system = [message.content for message in messages if message.role == "system"]
    leading = [text for text in (instructions, *system) if text]
    turns = [message for message in messages if message.role != "system"]
    return [Message("system", "\n\n".join(leading)), *turns] if leading else turns


def replay(response: Response) -> list[Message]:
    """The messages one response added to the conversation: its own input, then its answer (R-179).

    The answer is kept even if it is empty, as long as there was one (R-180).
    """
    return [*response.created.input, *join(piece_of(item) for item in response.items)]


def recorded_answers(chain: Chain, tokenizer_fingerprint: str) -> Answers:
    """The answers of a chain with the ids that the model sampled, where known.

    Only those of the same tokenizer: another's ids mean something else.
    """
    messages: list[tuple[Message, TokenIds]] = []
    for response in chain:
        ended, started = response.ended, response.started
        known = started is not None and started.tokenizer_fingerprint == tokenizer_fingerprint
        # Of a turn that was stopped to be steered they may end anywhere, even in the midst of a thought.
        is_whole = isinstance(ended, TurnCommitted) and ended.reason is None
        packed = ended.output_ids if known and ended and is_whole else None
        messages += [(message, ()) for message in response.created.input]
        messages += _answer(response, unpack(packed or b""))
    return _with({}, messages)


def with_answer(answers: Answers, response: Response, ids: TokenIds) -> Answers:
    """The answers and, after them, the response's own."""
    return _with(answers, _answer(response, ids))


def answers_among(messages: Sequence[Message], recorded: Mapping[int, TokenIds]) -> Answers:
    """The answers of a conversation, with one entry per occurrence.

    Args:
        recorded: the ids by the index of the message, as `placed` finds them.
    """
    return _with({}, [(message, recorded.get(index, ())) for index, message in enumerate(messages)])


def completed(answers: Answers, others: Answers) -> Answers:
    """The answers, with the ids of unknown occurrences taken from the others."""
    return {
        message: tuple(
            known or other
            for known, other in zip_longest(answers.get(message, ()), others.get(message, ()), fillvalue=())
        )
        for message in (*answers, *others)
    }


def placed(answers: Answers, messages: Sequence[Message]) -> dict[int, TokenIds]:
    """The model's own ids for a conversation's answers, by the index of the message.

    Each occurrence of a text gets its own ids; occurrences beyond the known ones get those of the last.
    """
    times: Counter[Message] = Counter()
    found: dict[int, TokenIds] = {}
    for index, message in enumerate(messages):
        if ids := answers.get(message):
            if now := ids[min(times[message], len(ids) - 1)]:
                found[index] = now
            times[message] += 1
    return found


def _answer(response: Response, ids: TokenIds) -> list[tuple[Message, TokenIds]]:
    """The response's answer as messages of the next prompt; ids are used only if there is one message."""
    messages = join(piece_of(item) for item in response.items)
    return [(message, ids if len(messages) == 1 else ()) for message in messages]


def _with(answers: Answers, messages: Sequence[tuple[Message, TokenIds]]) -> Answers:
    """The answers, followed by those among the messages."""
    found = dict(answers)
    for message, ids in messages:
        if message.role == "assistant":
            found[message] = (*found.get(message, ()), ids)
    return found


def token_log(chain: Chain) -> TokenIds:
    """Every token id the newest response of the chain read and wrote; as far as its engine has ids.

    Linear in the conversation: of each response only what the next ones repeat of it is taken, and the hash
    of the newest prompt proves them all.

    Raises:
        ValueError: the prompt cannot be rebuilt, or differs from the recorded one.
    """
    begun = [(response, response.started.prompt) for response in chain if response.started]
    if not begun:
        return ()
    newest, prompt = begun[-1]
    base, shared = prompt.base, prompt.shared
    pieces = [prompt.suffix]
    for response, record in reversed(begun[:-1]):
        if not shared or response.id != base:
            break
        if shared > record.tokens:
            pieces.append(_output(response)[: (shared - record.tokens) * ID_BYTES])
        if shared > record.shared:
            pieces.append(record.suffix[: (shared - record.shared) * ID_BYTES])
        base, shared = record.base, min(shared, record.shared)
    return checked_prompt(prompt, b"".join(reversed(pieces))) + unpack(_output(newest))


def _output(response: Response) -> bytes:
    """The ids that the response wrote, packed."""
    ended = response.ended
    return (ended.output_ids or b"") if isinstance(ended, TurnCommitted) else b""

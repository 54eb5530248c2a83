"""From a chain of responses to what the model reads next (R-149 … R-158, R-179 … R-181, D-09)."""

from collections.abc import Sequence

from domain.events import TurnCommitted
from domain.inputs import join, piece_of
from domain.messages import Message
from domain.response import Response
from domain.tokens import TokenIds, rebuild_prompt, unpack

Chain = Sequence[Response]
"""Committed responses, oldest first, each continuing the one before it."""


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
    said = [message for response in chain for message in replay(response)]
    said += own
    system = [message.content for message in said if message.role == "system"]
    leading = [text for text in (instructions, *system) if text]
    turns = [message for message in said if message.role != "system"]
    return [Message("system", "\n\n".join(leading)), *turns] if leading else turns


def replay(response: Response) -> list[Message]:
    """What one response added to the conversation: its own input, then the answer it gave (R-179).

    The answer is kept even if it is empty, as long as there was one (R-180).
    """
    return [*response.created.input, *join(piece_of(item) for item in response.items)]


def token_log(chain: Chain) -> TokenIds:
    """Every token id the newest response of the chain read and wrote; as far as its engine has ids."""
    known: dict[str, TokenIds] = {}
    ids: TokenIds = ()
    for response in chain:
        if response.started is None:
            continue
        prompt = response.started.prompt
        ids = rebuild_prompt(prompt, known.get(prompt.base or "", ()))
        if isinstance(response.ended, TurnCommitted) and response.ended.output_ids is not None:
            ids += unpack(response.ended.output_ids)
        known[response.id] = ids
    return ids

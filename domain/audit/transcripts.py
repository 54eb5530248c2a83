"""Which turn a chat goes on from: it names none, but sends all that was said before (decision 25).

A chat follows the newest turn of its owner whose transcript is its history: its messages up to the last
answer among them. System messages and reasoning are no part of either; clients rewrite the ones and leave out
the other. Two conversations that say the same cannot be told apart, and are forks of one.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from turnlog.domain.conversation import replay
from turnlog.domain.events import ResponseCreated, TurnCommitted
from turnlog.domain.messages import Message
from turnlog.domain.resent import transcript
from turnlog.domain.response import Response


def history_digest(created: ResponseCreated) -> bytes | None:
    """What a chat says that was said before; None if it has no answer in it, or is no chat."""
    answers = [index for index, message in enumerate(created.input) if message.role == "assistant"]
    if created.surface != "chat" or not answers:
        return None
    return _digest(created.input[: answers[-1] + 1])


def transcript_digest(response: Response) -> bytes | None:
    """All that was said when a chat had been answered; None if it was not, or is no chat."""
    if response.created.surface != "chat" or not isinstance(response.ended, TurnCommitted):
        return None
    return _digest(replay(response))


def _digest(messages: Sequence[Message]) -> bytes:
    said = transcript([message for message in messages if message.role != "system"])
    return sha256(msgspec.json.encode(said, order="deterministic")).digest()

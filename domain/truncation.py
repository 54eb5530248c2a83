"""Leaving out the oldest messages so that a conversation fits (`truncation: auto`)."""

from collections.abc import Sequence

from domain.messages import Message


def shorter_histories(messages: Sequence[Message]) -> list[list[Message]]:
    """The conversation whole, then with ever more of its oldest messages left out.

    The system message stays, and so does everything from the last user message on. A cut is made only
    before a user message, so that calls keep their outputs.
    """
    leading = [message for message in messages[:1] if message.role == "system"]
    rest = messages[len(leading) :]
    cuts = [index for index, message in enumerate(rest) if message.role == "user" and index > 0]
    return [list(messages), *([*leading, *rest[cut:]] for cut in cuts)]

"""Leaving out the oldest messages so that a conversation fits (`truncation: auto`)."""

from collections.abc import Sequence

from turnlog.domain.messages import Message


class ShorterHistories:
    """The conversation whole, then with ever more of its oldest messages left out; each made when asked for.

    The system message stays, and so does everything from the last user message on. A cut is made only
    before a user message, so that calls keep their outputs.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._leading = [message for message in messages[:1] if message.role == "system"]
        self._rest = messages[len(self._leading) :]
        later = range(1, len(self._rest))
        self._cuts = [0, *(index for index in later if self._rest[index].role == "user")]

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, index: int) -> list[Message]:
        return [*self._leading, *self._rest[self._cuts[index] :]]


def shorter_histories(messages: Sequence[Message]) -> ShorterHistories:
    """The candidates for a prompt that fits, longest first."""
    # Not a list of lists: thousands of messages would make hundreds of megabytes of them.
    return ShorterHistories(messages)

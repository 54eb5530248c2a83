"""A turn in two texts: what was asked and what was answered, for reading a conversation."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from turnlog.domain.events import Recorded
from turnlog.domain.items import CustomCallItem, FunctionCallItem, MessageItem
from turnlog.domain.response import Response, fold_stored


class Said(Struct, frozen=True):
    """What was asked in a turn and what was answered."""

    asked: str
    answered: str


def said_in(stories: Iterable[Sequence[Recorded]]) -> dict[str, Said]:
    """What was said in the turns that these stored events tell of, by response id."""
    turns = [fold_stored(recorded.event for recorded in story) for story in stories if story]
    return {turn.id: Said(asked_text(turn), answered_text(turn)) for turn in turns}


def asked_text(turn: Response) -> str:
    """What the request itself brought; what is not a user's message names its role."""
    return "\n".join(
        message.content if message.role == "user" else f"[{message.role}] {message.content}"
        for message in turn.created.input
    )


def answered_text(turn: Response) -> str:
    """Messages and calls of the answer; its reasoning is left out."""
    pieces = []
    for item in turn.items:
        match item:
            case MessageItem(text=text):
                pieces.append(text)
            case FunctionCallItem(name=name, arguments=given) | CustomCallItem(name=name, input=given):
                pieces.append(f"[calls {name} {given}]")
    return "\n".join(piece for piece in pieces if piece)

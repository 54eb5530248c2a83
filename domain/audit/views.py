"""Views of the log: a row, a turn, a conversation, with as much content as their reader may see."""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from turnlog.domain.audit.rows import AuditPage, AuditRow
from turnlog.domain.audit.seen import PromptIds, Seen, prompt_ids, seen
from turnlog.domain.audit.trees import Kind
from turnlog.domain.events import ItemExtended, ItemOpened, ReasoningDropped, Recorded, TurnPersisted
from turnlog.domain.items import ReasoningItem, item_texts
from turnlog.domain.response import Response, fold_stored

Content = Literal["shown", "withheld", "expired"]
"""Whether content is shown, withheld from this reader, or removed."""


class RowView(Struct, frozen=True):
    """A row, and whether its reader may see the content of the response."""

    row: AuditRow
    content: Content


class PageView(Struct, frozen=True):
    """The rows of a page as their reader may see them."""

    rows: list[RowView]
    page: AuditPage


class TurnView(RowView, frozen=True, kw_only=True):
    """A turn as far as it is stored, without content if that is not shown.

    `seen` is None if the content is not shown, `prompt_ids` if nobody asked for them. `attempts` are the
    client's tries at the same request, if there are several.
    """

    events: Sequence[Recorded]
    response: Response
    seen: Seen | None
    prompt_ids: PromptIds | None
    attempts: Sequence[RowView]
    replays: Sequence[RowView]


class Exchange(Struct, frozen=True):
    """A turn in two texts: what was asked and what was answered."""

    asked: str
    answered: str

    @property
    def size_bytes(self) -> int:
        """How long they are, encoded."""
        return len(self.asked.encode()) + len(self.answered.encode())


class Line(RowView, frozen=True):
    """A response in its conversation (`trees.Node`); `exchange` is None if it is not told."""

    kind: Kind
    depth: int
    exchange: Exchange | None


class Conversation(Struct, frozen=True):
    """A whole conversation in the order to read it; `cut` if there is more of it."""

    lines: list[Line]
    cut: bool


def turn_view(
    shown: RowView,
    events: Sequence[Recorded],
    chain: Sequence[Sequence[Recorded]],
    *,
    attempts: Sequence[RowView],
    replays: Sequence[RowView],
    with_prompt_ids: bool,
) -> TurnView:
    """The turn recorded by `events`.

    Args:
        chain: the events of its ancestors and, last, of the turn itself; empty if its content is not shown.
    """
    response, turns = _folded(events), [_folded(story) for story in chain]
    ids = None
    if with_prompt_ids:
        ids = prompt_ids(response, turns[:-1]) if shown.content == "shown" else PromptIds()
    return TurnView(
        shown.row,
        shown.content,
        events=events,
        response=response,
        seen=seen(turns) if turns else None,
        prompt_ids=ids,
        attempts=attempts if len(attempts) > 1 else (),
        replays=replays,
    )


def state_times(response: Response, events: Iterable[Recorded]) -> dict[str, int | None]:
    """When the turn reached each state, in Unix milliseconds; None if it has not, or that is not known."""
    started, ended = response.started, response.ended
    first_token_ms = ended.timing.first_token_ms if ended else None
    first_at_ms = (
        started.at_ms + round(first_token_ms)
        if started and first_token_ms is not None
        else _first_at_ms(events, ItemOpened, ItemExtended, ReasoningDropped)
    )
    return {
        "created": response.created.at_ms,
        "started": started.at_ms if started else None,
        "first_token": first_at_ms,
        "ended": ended.at_ms if ended else None,
        "persisted": _first_at_ms(events, TurnPersisted),
    }


def exchanges(stories: Iterable[Sequence[Recorded]]) -> dict[str, Exchange]:
    """The input and answer of the turns recorded by these events, by response id."""
    turns = [_folded(story) for story in stories if story]
    return {turn.id: Exchange(_asked(turn), _answered(turn)) for turn in turns}


def _asked(turn: Response) -> str:
    """What the request itself brought; what is not a user's message names its role."""
    return "\n".join(
        message.content if message.role == "user" else f"[{message.role}] {message.content}"
        for message in turn.created.input
    )


def _answered(turn: Response) -> str:
    items = [item for item in turn.items if not isinstance(item, ReasoningItem)]
    return "\n".join(filter(None, item_texts(items, call="[calls {} {}]")))


def _folded(story: Iterable[Recorded]) -> Response:
    return fold_stored(recorded.event for recorded in story)


def _first_at_ms(events: Iterable[Recorded], *kinds: type) -> int | None:
    return next((each.event.at_ms for each in events if isinstance(each.event, kinds)), None)

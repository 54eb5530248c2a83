"""The output of a response while it grows: what its item events fold to."""

from typing import assert_never

from turnlog.domain.events import ItemClosed, ItemExtended, ItemOpened
from turnlog.domain.items import (
    CustomCallItem,
    FunctionCallItem,
    Item,
    ItemStatus,
    Logprob,
    MessageItem,
    ReasoningItem,
)


class Entry:
    """An item that was opened at a place in the output, with the text it has so far.

    `item` is as it was opened. Its kind and its `output_index` never change; `is_open` does, and with it the
    text goes: the closed item has it.
    """

    __slots__ = ("is_open", "item", "logprobs", "output_index", "pieces")

    def __init__(self, output_index: int, item: Item) -> None:
        self.output_index = output_index
        self.item = item
        self.is_open = True
        self.pieces: list[str] = []
        self.logprobs: list[Logprob] = []

    @property
    def is_message(self) -> bool:
        """Whether it is an answer in text."""
        return isinstance(self.item, MessageItem)

    @property
    def text(self) -> str:
        """Everything that was streamed into the item."""
        return "".join(self.pieces)

    def cut_short(self) -> Item:
        """The item closed with what was streamed, as an answer that goes no further shows it (R-318)."""
        return self._with_text("incomplete")

    def so_far(self) -> Item:
        """The item while it grows."""
        return self._with_text("in_progress")

    def _with_text(self, status: ItemStatus) -> Item:
        match self.item:
            case MessageItem(id=item_id):
                return MessageItem(item_id, status, self.text)
            case ReasoningItem(id=item_id):
                return ReasoningItem(item_id, self.text)
            case FunctionCallItem(id=item_id) as call:
                return FunctionCallItem(item_id, call.call_id, call.name, self.text, status, call.namespace)
            case CustomCallItem(id=item_id) as call:
                return CustomCallItem(item_id, call.call_id, call.name, self.text, status, call.namespace)
            case _:
                assert_never(self.item)


class Output:
    """Every item that was opened, by id, and `items`: the closed, listed ones in order."""

    __slots__ = ("entries", "items")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.items: list[Item] = []

    @property
    def open_entries(self) -> list[Entry]:
        """Those still growing, in the order they were opened."""
        return [entry for entry in self.entries.values() if entry.is_open]

    def first(self, kind: type[MessageItem] | type[ReasoningItem]) -> Entry | None:
        """The first entry of that kind, open or closed; a turn has at most one of either."""
        for entry in self.entries.values():
            if isinstance(entry.item, kind):
                return entry
        return None

    def apply(self, event: ItemOpened | ItemExtended | ItemClosed) -> None:
        """Take in what has happened to an item."""
        match event:
            case ItemExtended(item_id=item_id, deltas=deltas, logprobs=logprobs):
                entry = self.entries[item_id]
                entry.pieces.extend(deltas)
                for each in logprobs:
                    entry.logprobs.extend(each)
            case ItemOpened(item=item, output_index=index):
                self.entries[item.id] = Entry(index, item)
            case ItemClosed(item=item, listed=listed):
                if opened := self.entries.get(item.id):
                    opened.is_open = False
                    opened.pieces.clear()
                    opened.logprobs.clear()
                if listed:
                    self.items.append(item)
            case _:
                assert_never(event)

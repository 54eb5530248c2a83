"""The running turns of this process, by id and owner."""

from collections.abc import Iterator, Set

from turnlog.app.turns.live import LiveTurn
from turnlog.domain.events import FailureReason
from turnlog.domain.items import Item
from turnlog.domain.response import Response


class LiveTurns:
    """The turns that are read from memory, by response id.

    A stored turn leaves when its last write settles or passes the hard limit, and is read from the log from
    then on; an unstored turn leaves when it has ended. An idempotency key stays taken until the log is
    certain to have its turn's result.
    """

    def __init__(self) -> None:
        self._turns: dict[str, LiveTurn] = {}
        self._keys: dict[str, tuple[str, str]] = {}
        self._ids_by_key: dict[tuple[str, str], str] = {}

    @property
    def ids(self) -> frozenset[str]:
        """The response ids of all of them, as of now."""
        return frozenset(self._turns)

    def add(self, turn: LiveTurn) -> None:
        """Add an accepted turn."""
        created = turn.response.created
        self._turns[created.response_id] = turn
        if key := created.idempotency_key:
            self._keys[created.response_id] = created.owner, key
            self._ids_by_key[created.owner, key] = created.response_id

    def remove(self, response_id: str) -> None:
        """Remove a turn and its idempotency key; no effect if it was removed before."""
        self._turns.pop(response_id, None)
        key = self._keys.pop(response_id, None)
        if key and self._ids_by_key[key] == response_id:
            del self._ids_by_key[key]

    def evict(self, response_id: str) -> None:
        """Remove a turn whose last write is wedged. The write may still land, so its key stays taken."""
        self._turns.pop(response_id, None)

    def of(self, response_id: str, owner: str | None) -> LiveTurn | None:
        """The turn of that id, if it is the owner's; None is an operator, who sees everybody's (D-18)."""
        turn = self._turns.get(response_id)
        return turn if turn and owner in (None, turn.response.created.owner) else None

    def under_key(self, owner: str, key: str) -> str | None:
        """The response for which the owner's idempotency key stands: the last one that began under it."""
        return self._ids_by_key.get((owner, key))

    def owner_of(self, response_id: str) -> str | None:
        """The turn's owner; None if there is no such turn."""
        return turn.response.created.owner if (turn := self._turns.get(response_id)) else None

    def queued_of(self, owner: str) -> int:
        """How many of the owner's turns wait for their lane."""
        return sum(response.started is None and response.ended is None for response in self._of(owner))

    def items_of(self, owner: str, item_ids: Set[str]) -> dict[str, Item]:
        """The owner's output items with those ids, by id; only of stored turns (D-30)."""
        return {
            item.id: item
            for response in self._of(owner)
            if response.created.store
            for item in response.items
            if item.id in item_ids
        }

    def abort_all(self, reason: FailureReason) -> None:
        """Stop every turn at its next safe point."""
        for turn in list(self._turns.values()):
            turn.abort(reason)

    def _of(self, owner: str) -> Iterator[Response]:
        return (turn.response for turn in self._turns.values() if turn.response.created.owner == owner)

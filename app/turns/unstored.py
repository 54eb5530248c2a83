"""Turns that only one connection can continue: they are not in the log, or their chain is not (D-30)."""

from copy import copy
from typing import NamedTuple

from msgspec.structs import replace

from turnlog.domain.events import TurnCommitted
from turnlog.domain.response import Response

MOST_HEADS = 64
"""How many responses a connection can continue; the oldest is dropped."""

MOST_BYTES = 32 * 1024 * 1024
"""How much of them is kept, by the size of the messages that made them, ancestors included."""


class _Link(NamedTuple):
    """A response and what it continues: another link, a stored response by its id, or nothing."""

    response: Response
    before: "_Link | str | None"
    chain_bytes: int


class UnstoredTurns:
    """The turns of a connection that can be continued on it and nowhere else."""

    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}

    def __contains__(self, response_id: str | None) -> bool:
        return response_id in self._links

    def chain(self, response_id: str | None) -> tuple[list[Response], str | None]:
        """The kept responses that end with `response_id`, oldest first, and the stored one before them."""
        link: _Link | str | None = self._links.get(response_id or "", response_id)
        newest_first = []
        while isinstance(link, _Link):
            newest_first.append(link.response)
            link = link.before
        return newest_first[::-1], link

    def keep(self, response: Response, size_bytes: int) -> None:
        """Keep a turn that has ended well, unless the log can continue it.

        Args:
            size_bytes: the size of the message that asked for it.
        """
        created = response.created
        previous = created.previous_response_id
        before: _Link | str | None = self._links.get(previous or "", previous)
        if not isinstance(response.ended, TurnCommitted) or (created.store and not isinstance(before, _Link)):
            return
        chain_bytes = size_bytes + (before.chain_bytes if isinstance(before, _Link) else 0)
        kept = copy(response)
        # A tool loop sends its tools with each turn, and a chain reads them from none.
        kept.created = replace(created, tools=(), metadata={})
        self._links[response.id] = _Link(kept, before, chain_bytes)
        while len(self._links) > MOST_HEADS or self._bytes > MOST_BYTES:
            del self._links[next(iter(self._links))]

    def drop(self, response_id: str | None) -> None:
        """Forget a turn that could not be continued; those that go on from it stay."""
        self._links.pop(response_id or "", None)

    @property
    def _bytes(self) -> int:
        return sum(link.chain_bytes for link in self._links.values())

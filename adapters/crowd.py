"""Who makes room when a server has too many connections: whoever has been idle longest, strangers first."""

from typing import Protocol

from turnlog.domain.budgets import Budget

LEAST_IDLE_S = 0.25
"""A connection is not idle at once: in a burst, all are accepted before the first request is read."""


class Connection(Protocol):
    """A connection of the crowd."""

    def leave(self) -> None:
        """Close, because another one needs the place."""


class Crowd:
    """The connections of a server. A stranger is one on which nobody has shown a key yet.

    A connection that answers a request, or whose answer is not taken yet, is never idle.

    Args:
        most: how many connections there may be.
        most_strangers: how many of them may be strangers while some are idle.
    """

    def __init__(self, most: int, most_strangers: int) -> None:
        self._strangers: set[Connection] = set()
        self._known: set[Connection] = set()
        # In the order in which they became idle, with the time at which they did.
        self._idle: dict[Connection, float] = {}
        self._idle_strangers: dict[Connection, float] = {}
        self.open = Budget("connections", most, lambda: len(self._strangers) + len(self._known))
        self.strangers = Budget("unauthenticated_connections", most_strangers, lambda: len(self._strangers))

    @property
    def surplus(self) -> int:
        """How many connections there are beyond the limit."""
        return max(0, int(self.open.in_use() - self.open.limit))

    def enter(self, connection: Connection, now_s: float) -> None:
        """Take a new connection in, in the place of an idle one if there is no other."""
        self._strangers.add(connection)
        if len(self._strangers) > self.strangers.limit:
            self.strangers.reach()
            while len(self._strangers) > self.strangers.limit and self._make_room(
                self._idle_strangers, now_s
            ):
                pass
        if self.surplus:
            self.open.reach()
            if not self._make_room(self._idle_strangers, now_s):
                self._make_room(self._idle, now_s)
        self.idles(connection, now_s)

    def admit(self, connection: Connection) -> None:
        """Somebody known is on this connection."""
        if connection in self._strangers:
            self._strangers.remove(connection)
            self._known.add(connection)
            if (since_s := self._idle_strangers.pop(connection, None)) is not None:
                self._idle[connection] = since_s

    def idles(self, connection: Connection, now_s: float) -> None:
        """The connection has nothing to do from now on."""
        self.works(connection)
        if connection in self._strangers:
            self._idle_strangers[connection] = now_s
        elif connection in self._known:
            self._idle[connection] = now_s

    def works(self, connection: Connection) -> None:
        """The connection has something to do."""
        self._idle.pop(connection, None)
        self._idle_strangers.pop(connection, None)

    def exit(self, connection: Connection) -> None:
        """Forget a connection; without effect if it has left before."""
        self.works(connection)
        self._strangers.discard(connection)
        self._known.discard(connection)

    def _make_room(self, idle: dict[Connection, float], now_s: float) -> bool:
        """Close the connection that has been idle longest; whether there was one."""
        longest, since_s = next(iter(idle.items()), (None, now_s))
        if longest is None or now_s - since_s < LEAST_IDLE_S:
            return False
        self.exit(longest)
        longest.leave()
        return True

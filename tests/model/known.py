"""What is known of a turn from outside: what its client was told, and what follows for its last write."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from turnlog.app.settings import marker_ttl_ms, persist_hard_limit_s
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.events import ResponseCreated, TurnCommitted, TurnFailed


@dataclass
class KnownTurn:
    """One accepted turn.

    Args:
        limit_ms: when it, or the first of the turns before it, expires by the limit of its request.
        process: the number of the process that runs it.
        watched: the turn as its client holds it while it runs.

    `sent` are the frames its client has got, `ended` the event that they end with. `own_versions` is how
    many events its own process has stored, once that process is gone. `wedged` is whether its last write
    has passed the hard limit, and `asked_ms` when somebody last asked for it after that.
    """

    created: ResponseCreated
    limit_ms: float
    process: int
    watched: LiveTurn | None
    sent: list[bytes] = field(default_factory=list)
    ended: TurnCommitted | TurnFailed | None = None
    own_versions: int | None = None
    wedged: bool = False
    asked_ms: int | None = None

    @property
    def id(self) -> str:
        """The response's id."""
        return self.created.response_id

    @property
    def stored(self) -> bool:
        """Whether it is to be stored."""
        return self.created.store

    @property
    def earliest_expiry_ms(self) -> float:
        """When it cannot be continued any more, unless others use its conversation."""
        return min(self.created.expires_at * 1000, self.limit_ms)

    @property
    def committed(self) -> bool:
        """Whether its client was told that it ended well."""
        return isinstance(self.ended, TurnCommitted)

    async def follow(self, frames: AsyncIterator[list[bytes]]) -> None:
        """Be its client: take every frame."""
        async for told in frames:
            self.sent += told

    def past_hard_limit(self, now_ms: int) -> bool:
        """Whether its last write, if it has not settled, is wedged by now."""
        return self.ended is not None and now_ms >= self._hard_limit_ms

    def remembered(self, now_ms: int) -> bool:
        """Whether its last write, which is wedged, has not been forgotten: its marker lives (R-131)."""
        asked_ms = self._hard_limit_ms if self.asked_ms is None else self.asked_ms
        return now_ms < min(asked_ms + marker_ttl_ms(), self.earliest_expiry_ms)

    @property
    def _hard_limit_ms(self) -> float:
        assert self.ended
        return self.ended.at_ms + 1000 * persist_hard_limit_s()

"""Given, when, then for the pool of warm caches: turns that only look up and keep."""

from collections.abc import Callable
from typing import NamedTuple

from tests.fakes.clock import StoppedClock
from tests.fakes.engine import CountedEngine
from turnlog.app.models.memory import Memory
from turnlog.app.prefix_cache import CacheLookup, CachePool, PrefixCache, Scope
from turnlog.app.prefix_cache.prints import KeyPrints
from turnlog.domain.events import CacheClass
from turnlog.domain.ports import Prompt
from turnlog.domain.tokens import TokenIds

TTL_S = 1_800.0
TOKEN_BYTES = 4
"""What a token takes in a handle of the scripted engine."""


def ids(count: int, first: int = 0) -> TokenIds:
    """So many token ids in a row; those of another `first` in the thousands share none with these."""
    return tuple(range(first, first + count))


class Found(NamedTuple):
    """What a turn starts from: what it is called, and how many tokens it spares."""

    cache_class: CacheClass
    spared_tokens: int


class Given:
    """A pool with one engine, and turns that are read and written in a moment.

    Args:
        budget_bytes: of the memory; None for no limit.
    """

    def __init__(
        self,
        engine: CountedEngine,
        *,
        budget_bytes: int | None = None,
        most_entries: int = 32,
        most_bytes: int = 1_000_000,
        ttl_s: float = TTL_S,
    ) -> None:
        self.engine = engine
        self.clock = StoppedClock()
        self.memory = Memory(budget_bytes)
        self.pool = CachePool(self.memory, most_entries=most_entries, most_bytes=most_bytes)
        self._ttl_s = ttl_s
        self.prefix_cache = self.another_process()

    def another_process(self, on_expiry: Callable[[], None] = lambda: None) -> PrefixCache:
        """What would look into this pool after a restart, if a pool could outlive one."""
        return PrefixCache(self.pool, KeyPrints(), self.clock, ttl_s=self._ttl_s, on_expiry=on_expiry)

    def scope(
        self, owner: str = "ann", salt: str | None = None, engine: CountedEngine | None = None
    ) -> Scope:
        """Whose caches are meant."""
        return self.prefix_cache.scope(owner, salt, engine or self.engine)

    def lookup(
        self,
        scope: Scope | None = None,
        *,
        previous: str | None = None,
        key: str | None = None,
        instructions: str | None = None,
    ) -> CacheLookup:
        """A turn that was accepted."""
        return self.prefix_cache.open(
            scope or self.scope(), previous_response_id=previous, key=key, instructions=instructions
        )

    def finds(
        self,
        prompt: TokenIds,
        scope: Scope | None = None,
        *,
        previous: str | None = None,
        key: str | None = None,
        instructions: str | None = None,
    ) -> Found:
        """What a turn with this prompt starts from."""
        lookup = self.lookup(scope, previous=previous, key=key, instructions=instructions)
        warm = self.prefix_cache.entry_for(lookup, Prompt(prompt))
        spared = 0 if warm is None else lookup.scope.engine.common_prefix(warm, Prompt(prompt))
        return Found(lookup.cache_class, spared)

    def ends(
        self,
        response_id: str,
        read: TokenIds,
        scope: Scope | None = None,
        *,
        previous: str | None = None,
        key: str | None = None,
        instructions: str | None = None,
    ) -> None:
        """A turn is committed, and what it has read and written is kept."""
        lookup = self.lookup(scope, previous=previous, key=key, instructions=instructions)
        engine = lookup.scope.engine
        assert isinstance(engine, CountedEngine)
        self.prefix_cache.adopt(lookup, response_id, engine.handle(read), ids=read, answers={})

    def is_cancelled(self, prompt: TokenIds, read: int) -> None:
        """A turn is cancelled when it has read so much of its prompt."""
        handle = self.engine.handle(prompt[:read])
        self.prefix_cache.keep_prefill(self.lookup(), handle, Prompt(prompt))

    def accounts(self) -> None:
        """Nothing is lost: every handle is in the pool or dropped, and the memory knows of those in it."""
        sizes = [self.engine.size_bytes(handle) for handle in self.engine.kept]
        told = (len(self.pool), self.pool.size_bytes, self.memory.used["warm"])
        assert told == (len(sizes), sum(sizes), sum(sizes))

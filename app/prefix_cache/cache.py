"""How a turn uses the prefix cache: the entry it starts from, and the one it leaves (R-088 … R-108)."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from turnlog.app.prefix_cache.pool import LEAST_SHARED_TOKENS, CacheEntry, CachePool, Scope
from turnlog.app.prefix_cache.prints import KeyPrints
from turnlog.domain.conversation import Answers
from turnlog.domain.events import CacheClass
from turnlog.domain.ports import CacheHandle, Clock, InferenceEngine, Prompt
from turnlog.domain.tokens import TokenIds

SWEEP_S = 30.0
"""How often expired entries are dropped, so that an idle server frees their memory (R-101)."""


class CacheLookup(NamedTuple):
    """One turn's lookup: the names it may use, and the result when it was accepted (R-243).

    `key` is a fingerprint; it is None when a previous response is continued (R-093).
    """

    scope: Scope
    previous_response_id: str | None
    key: str | None
    instructions: str | None
    cache_class: CacheClass

    def on(self, engine: InferenceEngine) -> "CacheLookup":
        """The same lookup on the engine that will run the turn."""
        if self.scope.engine is engine:
            return self
        return self._replace(scope=self.scope._replace(engine=engine))


class PrefixCache:
    """The prefix cache of a server, as turns use it. Event loop only.

    Args:
        ttl_s: how long an entry is kept after the turn that made it (R-101).
        on_expiry: called when the sweep has dropped expired entries.
    """

    def __init__(
        self,
        pool: CachePool,
        prints: KeyPrints,
        clock: Clock,
        *,
        ttl_s: float,
        on_expiry: Callable[[], None] = lambda: None,
    ) -> None:
        self.pool = pool
        self._prints = prints
        self._clock = clock
        self._ttl_s = ttl_s
        self._on_expiry = on_expiry

    def scope(self, owner: str, salt: str | None, engine: InferenceEngine) -> Scope:
        """The scope of the entries that a request may use."""
        return Scope(owner, self._prints.salt(salt), engine)

    def answers(self, scope: Scope) -> Answers:
        """The answers in a scope's entries; a client that echoes one means these exact ids."""
        return self.pool.answers(scope, self._clock.now_ms())

    def open(
        self, scope: Scope, *, previous_response_id: str | None, key: str | None, instructions: str | None
    ) -> CacheLookup:
        """Look up the entry that an accepted turn may start from (R-090 … R-093, R-102).

        Args:
            key: the request's raw `prompt_cache_key`; ignored if a response is continued (R-093).
            instructions: the effective instructions.
        """
        printed = None if previous_response_id else self._prints.key(key)
        lookup = CacheLookup(scope, previous_response_id, printed, instructions, "fresh")
        named = self._named(lookup)
        if previous_response_id:
            return lookup._replace(cache_class="hit" if named else "cold_replay")
        return lookup._replace(cache_class="prefix_hit" if named else "fresh")

    def entry_for(self, lookup: CacheLookup, prompt: Prompt) -> CacheHandle | None:
        """The handle to submit the prompt with. Submit it in the same step: it may be dropped later."""
        best = self.pool.best(lookup.scope, prompt, self._named(lookup), self._clock.now_ms())
        return best and best.handle

    def adopt(
        self,
        lookup: CacheLookup,
        response_id: str,
        handle: CacheHandle,
        *,
        ids: TokenIds,
        answers: Answers,
    ) -> None:
        """Keep the cache of a committed turn (R-104).

        Args:
            ids: all tokens read and written.
            answers: the conversation's answers whose ids are known, including this turn's.
        """
        self.pool.put(
            CacheEntry(
                scope=lookup.scope,
                handle=handle,
                ids=ids,
                filed={response_id: lookup.instructions},
                keys={(lookup.key, lookup.instructions): None} if lookup.key else {},
                answers=answers,
                expires_ms=self._expiry_ms(),
            )
        )

    def keep_prefill(self, lookup: CacheLookup, handle: CacheHandle, prompt: Prompt) -> None:
        """Keep the prefill of a cancelled turn, so that a retry does not start over (D-28)."""
        read = lookup.scope.engine.common_prefix(handle, prompt)
        if read < LEAST_SHARED_TOKENS:  # without a name, it would never be used
            lookup.scope.engine.drop(handle)
            return
        self.pool.put(
            CacheEntry(scope=lookup.scope, handle=handle, ids=prompt.ids[:read], expires_ms=self._expiry_ms())
        )

    async def sweep(self) -> None:
        """Drop expired entries until cancelled."""
        while True:
            await asyncio.sleep(min(SWEEP_S, self._ttl_s))
            if self.pool.expire(self._clock.now_ms()):
                self._on_expiry()

    def _named(self, lookup: CacheLookup) -> CacheEntry | None:
        scope, previous_id, key, instructions, _ = lookup
        now_ms = self._clock.now_ms()
        if previous_id:
            return self.pool.filed_under(scope, previous_id, instructions, now_ms)
        return self.pool.keyed(scope, key, instructions, now_ms) if key else None

    def _expiry_ms(self) -> int:
        return self._clock.now_ms() + round(self._ttl_s * 1000)

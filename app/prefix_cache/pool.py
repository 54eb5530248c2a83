"""The pool of cache entries: retention, best match for a prompt, and eviction (D-15, D-24, D-28).

Synchronous, and the only place that keeps or drops an engine's cache handles.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from turnlog.app.models.memory import Memory, MemoryReservation
from turnlog.domain.conversation import Answers
from turnlog.domain.ports import CacheHandle, InferenceEngine, Prompt
from turnlog.domain.tokens import TokenIds

_Name = TypeVar("_Name")
_What = TypeVar("_What")

LEAST_SHARED_TOKENS = 64
"""An entry not named by id or key is used only if it shares at least this much of the prompt (D-28)."""

MOST_NAMES = 1_024
"""How many responses, and how many keys, may name one entry; the oldest are forgotten."""


class Scope(NamedTuple):
    """The scope of an entry: nothing of one owner, salt or model is ever used for another.

    `salt` is a fingerprint; None is no salt, which differs from every salt.
    """

    owner: str
    salt: str | None
    engine: InferenceEngine


@dataclass(eq=False, kw_only=True)
class CacheEntry:
    """The cache of one conversation's tokens, and the names it can be looked up by.

    `filed` maps the responses that lead here to their instructions; `keys` has the fingerprints of the prompt
    cache keys it was made with, each with the instructions. `ids` are the tokens read and written.
    """

    scope: Scope
    handle: CacheHandle
    ids: TokenIds
    filed: dict[str, str | None] = field(default_factory=dict)
    keys: dict[tuple[str, str | None], None] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)
    expires_ms: int = 0
    last_use: int = 0
    reservation: MemoryReservation | None = None

    @property
    def size_bytes(self) -> int:
        """Memory that the handle holds."""
        return self.scope.engine.size_bytes(self.handle)

    def covers(self, other: "CacheEntry") -> bool:
        """Whether this entry can replace the other for every prompt."""
        if self.ids == other.ids:
            return True
        if self.ids[: len(other.ids)] != other.ids:
            return False
        # Some caches cannot be trimmed to a shorter prefix. At least one id is always left to be read.
        spared = self.scope.engine.common_prefix(self.handle, Prompt(other.ids))
        return spared >= len(other.ids) - 1

    def take_names_of(self, other: "CacheEntry") -> None:
        """Take over the other entry's names."""
        self.filed = _newest(other.filed | self.filed)
        self.answers = {**other.answers, **self.answers}
        if self.ids == other.ids:
            self.keys = _newest(other.keys | self.keys)

    def stand_in_for(self, newer: "CacheEntry") -> None:
        """Take over the newer entry's names and expiry."""
        self.filed = _newest(self.filed | newer.filed)
        self.answers = {**newer.answers, **self.answers}
        self.keys = _newest(self.keys | newer.keys)
        self.expires_ms = max(self.expires_ms, newer.expires_ms)


class CachePool:
    """Keeps entries within two bounds; the least recently used is evicted first.

    Args:
        memory: the shared budget; entries take only memory that nothing else needs.
        most_entries, most_bytes: the most entries, and the most memory they may take together.
    """

    def __init__(self, memory: Memory, *, most_entries: int, most_bytes: int) -> None:
        self._memory = memory
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._caches: list[CacheEntry] = []
        self._uses = count(1)
        self._gone: WeakSet[InferenceEngine] = WeakSet()

    def __len__(self) -> int:
        return len(self._caches)

    @property
    def size_bytes(self) -> int:
        """Memory that the pool holds."""
        return sum(cache.reservation.count_bytes for cache in self._caches if cache.reservation)

    def filed_under(
        self, scope: Scope, response_id: str, instructions: str | None, now_ms: int
    ) -> CacheEntry | None:
        """The entry that a response leads to, if it had the same instructions (tier 1, R-090)."""
        for cache in self._alive(scope, now_ms):
            if response_id in cache.filed and cache.filed[response_id] == instructions:
                return cache
        return None

    def keyed(self, scope: Scope, key: str, instructions: str | None, now_ms: int) -> CacheEntry | None:
        """The most recent entry with this key and the same instructions (tier 2, R-092)."""
        fitting = (cache for cache in self._alive(scope, now_ms) if (key, instructions) in cache.keys)
        return max(fitting, key=lambda cache: cache.last_use, default=None)

    def best(self, scope: Scope, prompt: Prompt, named: CacheEntry | None, now_ms: int) -> CacheEntry | None:
        """The entry that shares the longest prefix with the prompt; None if none shares enough.

        Args:
            named: the entry found by name, which any shared length suffices for.
        """
        best, most = None, 0
        for cache in self._alive(scope, now_ms):
            spared = scope.engine.common_prefix(cache.handle, prompt)
            if spared > most and (cache is named or spared >= LEAST_SHARED_TOKENS):
                best, most = cache, spared
        if best:
            best.last_use = next(self._uses)
        return best

    def answers(self, scope: Scope, now_ms: int) -> Answers:
        """Every answer in an entry, with its ids."""
        answers = (item for cache in self._alive(scope, now_ms) for item in cache.answers.items())
        return {answer: ids for answer, ids in answers if any(ids)}

    def put(self, cache: CacheEntry) -> None:
        """Keep an entry, replacing those it covers.

        It is dropped if there is still no room, or if its model was unloaded.
        """
        if cache.scope.engine in self._gone:
            self._drop_handle(cache)
            return
        others = self._of(cache.scope)
        if longer := next((other for other in others if _is_redundant_beside(cache, other)), None):
            longer.stand_in_for(cache)
            longer.last_use = next(self._uses)
            self._drop_handle(cache)
            return
        size_bytes = cache.size_bytes
        if not self._could_hold(size_bytes):
            self._drop_handle(cache)
            return
        for other in others:
            if cache.covers(other):
                cache.take_names_of(other)
                self._remove(other)
        while self._caches and self._is_too_much(size_bytes):
            self._remove(self._longest_unused())
        reservation = self._memory.take("warm", size_bytes)
        # A waiting reservation has already reclaimed all it can use; the other entries may stay.
        while reservation is None and self._caches and not self._memory.is_waited_for:
            self._remove(self._longest_unused())
            reservation = self._memory.take("warm", size_bytes)
        if reservation is None:
            self._drop_handle(cache)
            return
        cache.reservation = reservation
        cache.last_use = next(self._uses)
        self._caches.append(cache)

    def shrink(self, missing_bytes: int) -> int:
        """Evict entries of at least `missing_bytes`, or all of them; returns the bytes evicted."""
        evicted = 0
        while self._caches and evicted < missing_bytes:
            cache = self._longest_unused()
            evicted += cache.reservation.count_bytes if cache.reservation else 0
            self._remove(cache)
        return evicted

    def expire(self, now_ms: int) -> int:
        """Drop expired entries (R-101); returns how many."""
        expired = [cache for cache in self._caches if cache.expires_ms < now_ms]
        for cache in expired:
            self._remove(cache)
        return len(expired)

    def forget(self, engine: InferenceEngine) -> None:
        """Drop all entries of a model being unloaded; later ones of it are not kept either."""
        self._gone.add(engine)
        for cache in list(self._caches):
            if cache.scope.engine is engine:
                self._remove(cache)

    def _could_hold(self, size_bytes: int) -> bool:
        """Whether it would fit if all others were evicted; otherwise none of them needs to be."""
        most_bytes = min(self._most_bytes, self._memory.free_bytes + self.size_bytes)
        return self._most_entries > 0 and size_bytes <= most_bytes

    def _is_too_much(self, size_bytes: int) -> bool:
        return len(self) >= self._most_entries or self.size_bytes + size_bytes > self._most_bytes

    def _alive(self, scope: Scope, now_ms: int) -> Iterator[CacheEntry]:
        self.expire(now_ms)
        return iter(self._of(scope))

    def _of(self, scope: Scope) -> list[CacheEntry]:
        return [cache for cache in self._caches if cache.scope == scope]

    def _longest_unused(self) -> CacheEntry:
        return min(self._caches, key=lambda cache: cache.last_use)

    def _remove(self, cache: CacheEntry) -> None:
        # Releasing memory may grant a waiting reservation, which can evict further entries reentrantly.
        if cache not in self._caches:
            return
        self._caches.remove(cache)
        self._drop_handle(cache)
        if cache.reservation:
            cache.reservation.release()

    def _drop_handle(self, cache: CacheEntry) -> None:
        cache.scope.engine.drop(cache.handle)


def _is_redundant_beside(cache: CacheEntry, other: CacheEntry) -> bool:
    """Whether the other makes the entry redundant. Of two equals the newer stays."""
    return other.covers(cache) and not cache.covers(other)


def _newest(names: dict[_Name, _What]) -> dict[_Name, _What]:
    """The last `MOST_NAMES` of them."""
    return dict(islice(names.items(), max(0, len(names) - MOST_NAMES), None))

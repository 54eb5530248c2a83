"""The warm caches: which are kept, which is the best for a prompt, which have to go (D-15, D-24, D-28).

Synchronous, and the only place that keeps or drops a handle of an engine.
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
"""A cache that was not asked for by id or key is used if it has at least so much of the prompt (D-28)."""

MOST_NAMES = 1_024
"""How many responses, and how many keys, lead to one cache; the oldest are forgotten."""


class Scope(NamedTuple):
    """Whose caches are meant: nothing of one owner, salt or model is ever used for another.

    `salt` is a fingerprint; None is no salt, which differs from every salt.
    """

    owner: str
    salt: str | None
    engine: InferenceEngine


@dataclass(eq=False, kw_only=True)
class CacheEntry:
    """What a model has read of one conversation, and by which names it can be asked for.

    `filed` has the responses that lead here, with the instructions they had; `keys` the fingerprints of the
    prompt cache keys it was made with, each with the instructions. `ids` are what was read and written.
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
        """Whether this one is as good as the other wherever that one is."""
        if self.ids == other.ids:
            return True
        if self.ids[: len(other.ids)] != other.ids:
            return False
        # Some caches cannot be cut back to an earlier place. One id is always left to be read.
        spared = self.scope.engine.common_prefix(self.handle, Prompt(other.ids))
        return spared >= len(other.ids) - 1

    def take_names_of(self, other: "CacheEntry") -> None:
        """Let the responses that lead to the other lead here."""
        self.filed = _newest(other.filed | self.filed)
        self.answers = {**other.answers, **self.answers}
        if self.ids == other.ids:
            self.keys = _newest(other.keys | self.keys)

    def stand_in_for(self, newer: "CacheEntry") -> None:
        """Be found, and last, as the newer one would have been."""
        self.filed = _newest(self.filed | newer.filed)
        self.answers = {**newer.answers, **self.answers}
        self.keys = _newest(self.keys | newer.keys)
        self.expires_ms = max(self.expires_ms, newer.expires_ms)


class CachePool:
    """Keeps caches within two bounds, the longest unused leaving first.

    Args:
        memory: the budget that the caches are a part of; they take only what nobody else needs.
        most_entries, most_bytes: how many there may be, and how much memory they may take together.
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
        """The cache that a response leads to, if it had the same instructions (tier 1, R-090)."""
        for cache in self._alive(scope, now_ms):
            if response_id in cache.filed and cache.filed[response_id] == instructions:
                return cache
        return None

    def keyed(self, scope: Scope, key: str, instructions: str | None, now_ms: int) -> CacheEntry | None:
        """The latest cache made with a key and the same instructions (tier 2, R-092)."""
        fitting = (cache for cache in self._alive(scope, now_ms) if (key, instructions) in cache.keys)
        return max(fitting, key=lambda cache: cache.last_use, default=None)

    def best(self, scope: Scope, prompt: Prompt, named: CacheEntry | None, now_ms: int) -> CacheEntry | None:
        """The cache that spares the model most of the prompt; none if none is worth it.

        Args:
            named: the one that was asked for, which is good for any length.
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
        """Every answer that is in a cache, with its ids."""
        answers = (item for cache in self._alive(scope, now_ms) for item in cache.answers.items())
        return {said: ids for said, ids in answers if any(ids)}

    def put(self, cache: CacheEntry) -> None:
        """Keep a cache, in place of those it covers.

        It is dropped if there is no room even so, or if its model has gone.
        """
        if cache.scope.engine in self._gone:
            self._drop_handle(cache)
            return
        others = self._of(cache.scope)
        if longer := next((other for other in others if _is_spared_by(cache, other)), None):
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
        # Whoever waits for memory has taken from the pool what it needs; the rest may stay.
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
        """Give up at least so many bytes, or all there is; how many were given up."""
        given_up = 0
        while self._caches and given_up < missing_bytes:
            cache = self._longest_unused()
            given_up += cache.reservation.count_bytes if cache.reservation else 0
            self._remove(cache)
        return given_up

    def expire(self, now_ms: int) -> int:
        """Drop what has expired (R-101); how many that were."""
        expired = [cache for cache in self._caches if cache.expires_ms < now_ms]
        for cache in expired:
            self._remove(cache)
        return len(expired)

    def forget(self, engine: InferenceEngine) -> None:
        """Drop everything of a model that goes; what is still read on it is not kept."""
        self._gone.add(engine)
        for cache in list(self._caches):
            if cache.scope.engine is engine:
                self._remove(cache)

    def _could_hold(self, size_bytes: int) -> bool:
        """Whether there would be room if all others went; else none of them has to."""
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
        # Its memory, given back, may let in somebody who has others given up, while those are gone through.
        if cache not in self._caches:
            return
        self._caches.remove(cache)
        self._drop_handle(cache)
        if cache.reservation:
            cache.reservation.release()

    def _drop_handle(self, cache: CacheEntry) -> None:
        cache.scope.engine.drop(cache.handle)


def _is_spared_by(cache: CacheEntry, other: CacheEntry) -> bool:
    """Whether the other makes the cache superfluous. Of two equals the newer stays."""
    return other.covers(cache) and not cache.covers(other)


def _newest(names: dict[_Name, _What]) -> dict[_Name, _What]:
    """The last of them."""
    return dict(islice(names.items(), max(0, len(names) - MOST_NAMES), None))

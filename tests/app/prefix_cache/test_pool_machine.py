"""Whatever turns, models and time do to the pool: no handle is lost, and nothing crosses a scope."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.app.prefix_cache.pools import TOKEN_BYTES, TTL_S, Given, ids
from tests.fakes.engine import CountedEngine, UncutEngine
from turnlog.app.models.memory import MemoryReservation
from turnlog.app.prefix_cache import CacheLookup, Scope
from turnlog.app.prefix_cache.pool import LEAST_SHARED_TOKENS
from turnlog.domain.ports import CacheHandle, Prompt
from turnlog.domain.tokens import TokenIds

MOST_ENTRIES = 4
MOST_BYTES = 700 * TOKEN_BYTES
BUDGET_BYTES = 900 * TOKEN_BYTES

# Conversations share beginnings because there are few words to begin with; a word has 40 tokens.
conversations = st.lists(st.sampled_from((0, 1_000)), min_size=1, max_size=5).map(
    lambda words: tuple(token for word in words for token in ids(40, word))
)
cuts = st.integers(0, 39)
owners = st.sampled_from(("ann", "bob"))
salts = st.sampled_from((None, ""))
keys = st.sampled_from((None, "first-key", "second-key"))
instructed = st.sampled_from((None, ""))


class Named(NamedTuple):
    """A response that was kept, and with which instructions."""

    scope: Scope
    response_id: str
    instructions: str | None


class WarmCaches(RuleBasedStateMachine):
    """Beside the pool only the handles of the engines are looked at, and who they were made for."""

    def __init__(self) -> None:
        super().__init__()
        self.engines: tuple[CountedEngine, ...] = (CountedEngine(), UncutEngine())
        self.given = Given(
            self.engines[0], most_entries=MOST_ENTRIES, most_bytes=MOST_BYTES, budget_bytes=BUDGET_BYTES
        )
        self.given.memory.reclaim_by(self._reclaim)
        self.made_for: dict[CacheHandle, Scope] = {}
        self.named: list[Named] = []
        self.reservations: list[MemoryReservation] = []

    def _reclaim(self, missing_bytes: int) -> int:
        return missing_bytes - self.given.pool.shrink(missing_bytes)

    def _scope(self, owner: str, salt: str | None, which: int) -> Scope:
        return self.given.scope(owner, salt, self.engines[which])

    def _handle(self, scope: Scope, read: TokenIds) -> CacheHandle:
        engine = scope.engine
        assert isinstance(engine, CountedEngine)
        handle = engine.handle(read)
        self.made_for[handle] = scope
        return handle

    # ── turns ──

    @rule(
        owner=owners,
        salt=salts,
        which=st.integers(0, 1),
        read=conversations,
        cut=cuts,
        key=keys,
        instructions=instructed,
        previous=st.sampled_from((None, "resp_gone")),
    )
    def a_turn_is_committed(
        self,
        *,
        owner: str,
        salt: str | None,
        which: int,
        read: TokenIds,
        cut: int,
        key: str | None,
        instructions: str | None,
        previous: str | None,
    ) -> None:
        """It is kept under a new id, if there is room."""
        scope = self._scope(owner, salt, which)
        read = read[: len(read) - cut]
        lookup = self.given.lookup(scope, previous=previous, key=key, instructions=instructions)
        response_id = f"resp_{len(self.named)}"
        self.named.append(Named(scope, response_id, instructions))
        self.given.prefix_cache.adopt(lookup, response_id, self._handle(scope, read), ids=read, answers={})

    @rule(owner=owners, salt=salts, which=st.integers(0, 1), prompt=conversations, cut=cuts)
    def a_turn_is_cancelled(
        self, owner: str, salt: str | None, which: int, prompt: TokenIds, cut: int
    ) -> None:
        """What it read has no name."""
        scope = self._scope(owner, salt, which)
        handle = self._handle(scope, prompt[: len(prompt) - cut])
        self.given.prefix_cache.keep_prefill(self.given.lookup(scope), handle, Prompt(prompt))

    @rule(owner=owners, salt=salts, which=st.integers(0, 1), prompt=conversations, key=keys)
    def a_turn_looks_what_it_can_start_from(
        self, owner: str, salt: str | None, which: int, prompt: TokenIds, key: str | None
    ) -> None:
        """It gets the best of its own scope, whatever it asks for."""
        lookup = self.given.lookup(self._scope(owner, salt, which), key=key)

        assert self._spared(lookup, prompt) >= self._most_spared(lookup.scope, prompt)

    @precondition(lambda self: self.named)
    @rule(choice=st.data(), owner=owners, instructions=instructed)
    def a_response_is_continued(self, choice: st.DataObject, owner: str, instructions: str | None) -> None:
        """It is a hit only for whom it was made, with the instructions it had."""
        made_for, response_id, _ = choice.draw(st.sampled_from(self.named))
        scope = made_for._replace(owner=owner)
        lookup = self.given.lookup(scope, previous=response_id, instructions=instructions)

        if lookup.cache_class == "hit":
            assert Named(scope, response_id, instructions) in self.named

    # ── what else happens ──

    @rule(which=st.integers(0, 1))
    def a_model_goes(self, which: int) -> None:
        """Its handles go with it."""
        self.given.pool.forget(self.engines[which])
        assert self.engines[which].kept == []

    @rule(ms=st.sampled_from((1, round(TTL_S * 500), round(TTL_S * 1000) + 1)))
    def time_passes(self, ms: int) -> None:
        """Caches expire."""
        self.given.clock.ms += ms

    @rule()
    def the_sweep_comes(self) -> None:
        """What has expired is dropped."""
        self.given.pool.expire(self.given.clock.now_ms())

    @precondition(lambda self: len(self.reservations) < 3)
    @rule(tokens=st.integers(1, 500))
    def somebody_asks_for_memory(self, tokens: int) -> None:
        """And waits if it is not there."""
        self.reservations.append(self.given.memory.ask("running", tokens * TOKEN_BYTES, lambda: None))

    @precondition(lambda self: self.reservations)
    @rule()
    def somebody_gives_memory_back(self) -> None:
        """The oldest reservation ends."""
        self.reservations.pop(0).release()

    # ── what always holds ──

    @invariant()
    def no_handle_is_lost(self) -> None:
        """Every one is in the pool or was dropped, and the memory knows those in it."""
        pool, used = self.given.pool, self.given.memory.used
        sizes = [engine.size_bytes(handle) for engine in self.engines for handle in engine.kept]
        assert (len(pool), pool.size_bytes, used["warm"]) == (len(sizes), sum(sizes), sum(sizes))

    @invariant()
    def the_bounds_hold(self) -> None:
        """Of the pool, and of all memory."""
        assert len(self.given.pool) <= MOST_ENTRIES
        assert self.given.pool.size_bytes <= MOST_BYTES
        assert self.given.memory.used.total() <= BUDGET_BYTES

    def teardown(self) -> None:
        """The threads end."""
        for engine in self.engines:
            engine.close()

    # ── what was found, and what there was ──

    def _spared(self, lookup: CacheLookup, prompt: TokenIds) -> int:
        warm = self.given.prefix_cache.entry_for(lookup, Prompt(prompt))
        if warm is None:
            return 0
        assert self.made_for[warm] == lookup.scope
        return lookup.scope.engine.common_prefix(warm, Prompt(prompt))

    def _most_spared(self, scope: Scope, prompt: TokenIds) -> int:
        """The most that any handle of the scope would spare, if it is enough."""
        assert isinstance(scope.engine, CountedEngine)
        spared = [
            scope.engine.common_prefix(handle, Prompt(prompt))
            for handle in scope.engine.kept
            if self.made_for[handle] == scope
        ]
        most = max(spared, default=0)
        return most if most >= LEAST_SHARED_TOKENS else 0


TestWarmCaches = WarmCaches.TestCase
TestWarmCaches.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

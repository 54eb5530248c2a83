"""When warm caches expire, and that their memory is given back (R-101)."""

import asyncio

from tests.app.prefix_cache.pools import TTL_S, Found, Given, ids
from tests.fakes.engine import CountedEngine

A, B = ids(100), ids(100, 5_000)
COLD = Found("cold_replay", 0)


def test_a_cache_is_found_until_its_time_is_over_and_dropped_at_the_next_look(engine: CountedEngine) -> None:
    """R-101: its last moment is still its own."""
    given = Given(engine)
    given.ends("resp_a", A)
    given.clock.ms += round(TTL_S * 1000)
    assert given.finds(A, previous="resp_a") == Found("hit", 100)

    given.clock.ms += 1

    assert given.finds(A, previous="resp_a") == COLD
    assert engine.kept == []
    given.accounts()


def test_a_cache_that_is_extended_lasts_as_long_as_the_turn_that_did_it(engine: CountedEngine) -> None:
    """R-101: the time begins anew with each turn."""
    given = Given(engine)
    given.ends("resp_1", A[:70])
    given.clock.ms += round(TTL_S * 1000)
    given.ends("resp_2", A, previous="resp_1")
    given.clock.ms += round(TTL_S * 1000)

    assert given.finds(A, previous="resp_1") == Found("hit", 100)
    given.accounts()


def test_expired_caches_are_dropped_though_nobody_looks(engine: CountedEngine) -> None:
    """R-101."""
    given = Given(engine)
    given.ends("resp_a", A)
    given.clock.ms += 1
    given.ends("resp_b", B)
    given.clock.ms += round(TTL_S * 1000)

    assert given.pool.expire(given.clock.now_ms()) == 1

    assert given.finds(A, previous="resp_a") == COLD
    assert given.finds(B, previous="resp_b") == Found("hit", 100)
    given.accounts()


async def test_an_idle_server_drops_what_has_expired_by_itself(engine: CountedEngine) -> None:
    """R-101: and only then the engines are told to give the memory back, with the handles gone already."""
    given = Given(engine, ttl_s=0.001)
    kept: list[int] = []
    told = asyncio.Event()

    def on_expiry() -> None:
        kept.append(len(engine.kept))
        told.set()

    prefix_cache = given.another_process(on_expiry)
    given.ends("resp_a", A)
    given.clock.ms += 1_000

    sweep = asyncio.create_task(prefix_cache.sweep())
    await told.wait()
    sweep.cancel()

    assert kept == [0]
    given.accounts()

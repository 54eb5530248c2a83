"""Which warm caches are kept and found, on the scripted engine's real handles."""

from collections.abc import Iterator

import pytest

from tests.app.prefix_cache.pools import TOKEN_BYTES, TTL_S, Found, Given, ids
from tests.app.turns.writes import Lines
from tests.fakes.engine import CountedEngine, UncutEngine
from turnlog.app.prefix_cache.pool import MOST_NAMES

KEY = "a-key-of-mine"
A, B = ids(100), ids(100, 5_000)
"""Two conversations that have nothing in common."""

NOTHING = Found("fresh", 0)
COLD = Found("cold_replay", 0)


@pytest.fixture
def given(engine: CountedEngine) -> Iterator[Given]:
    """A pool with room for all; at the end nothing of it must be lost."""
    given = Given(engine)
    yield given
    given.accounts()


# ── by name ──


def test_a_response_leads_to_its_cache_if_the_instructions_are_the_same(given: Given) -> None:
    """R-090, R-104, G-081, G-084: byte for byte, and none is not the empty one."""
    given.ends("resp_a", A, instructions="be kind")
    given.ends("resp_b", B, instructions="")

    found = {
        (name, instructions): given.finds(ids(20, 9_000), previous=name, instructions=instructions)
        for name in ("resp_a", "resp_b", "resp_c")
        for instructions in (None, "", "be kind", "be kind ")
    }

    hits = {asked for asked, what in found.items() if what.cache_class == "hit"}
    assert hits == {("resp_a", "be kind"), ("resp_b", "")}
    assert {what for asked, what in found.items() if asked not in hits} == {COLD}


def test_a_key_leads_to_the_latest_cache_with_the_same_instructions(given: Given) -> None:
    """R-092."""
    given.ends("resp_a", A[:50], key=KEY)
    given.ends("resp_b", B[:50], key=KEY)
    given.ends("resp_c", ids(50, 7_000), key=KEY, instructions="be kind")

    assert given.finds(B, key=KEY) == Found("prefix_hit", 50)
    assert given.finds(A, key=KEY) == Found("prefix_hit", 0)
    assert given.finds(B, key=KEY, instructions="") == NOTHING
    assert given.finds(B, key="another-key") == NOTHING
    assert given.finds(B) == NOTHING


def test_a_turn_that_continues_another_is_not_kept_under_its_key(given: Given) -> None:
    """R-091, R-093, G-089, G-090."""
    given.ends("resp_b", B, key=KEY)

    given.ends("resp_a", A, previous="resp_gone", key=KEY)

    assert given.finds(A[:50], previous="resp_gone", key=KEY) == COLD
    assert given.finds(B[:50], key=KEY) == Found("prefix_hit", 50)
    assert given.finds(A[:50], key=KEY) == Found("prefix_hit", 0)


def test_a_key_that_is_not_looked_at_is_not_warned_of(given: Given, lines: Lines) -> None:
    """R-098, G-095."""
    given.finds(A, previous="resp_a", key="short")
    assert lines.told == []

    given.finds(A, key="short")
    assert len(lines.told) == 1


def test_a_key_of_another_process_is_another_key(given: Given) -> None:
    """R-097, G-096."""
    given.ends("resp_a", A[:50], key=KEY)
    assert given.finds(A, key=KEY) == Found("prefix_hit", 50)

    given.prefix_cache = given.another_process()

    assert given.finds(A, key=KEY) == NOTHING


def test_what_was_asked_for_by_name_is_used_for_less_too(given: Given) -> None:
    """D-28: the 64 tokens are for what nobody asked for."""
    given.ends("resp_a", A[:10], key=KEY)

    assert given.finds(A, previous="resp_a") == Found("hit", 10)
    assert given.finds(A, key=KEY) == Found("prefix_hit", 10)
    assert given.finds(A) == NOTHING


# ── by what they have read ──


def test_any_cache_of_the_scope_is_used_that_has_64_tokens_of_the_prompt(given: Given) -> None:
    """D-28: the class is unchanged by it."""
    given.ends("resp_a", A)

    assert given.finds(A[:64] + B) == Found("fresh", 64)
    assert given.finds(A[:64] + B, previous="resp_gone") == Found("cold_replay", 64)
    assert given.finds(A[:64] + B, key=KEY) == Found("fresh", 64)
    assert given.finds(A[:63] + B) == NOTHING


def test_the_cache_that_spares_most_is_used_also_if_another_was_asked_for(given: Given) -> None:
    """D-28."""
    given.ends("resp_a", A[:70] + B)
    given.ends("resp_b", A[:90] + ids(5, 8_000))

    assert given.finds(A, previous="resp_a") == Found("hit", 90)


def test_nothing_crosses_owners_salts_or_models(given: Given, uncut: UncutEngine) -> None:
    """R-099, D-15, D-18: neither by id, nor by key, nor by what was read."""
    scopes = [
        given.scope(owner, salt, engine)
        for owner in ("ann", "bob")
        for salt in (None, "", "s")
        for engine in (given.engine, uncut)
    ]
    mine, *others = scopes
    given.ends("resp_a", A, mine, key=KEY)

    assert given.finds(A, mine, previous="resp_a") == Found("hit", 100)
    for other in others:
        assert given.finds(A, other, previous="resp_a") == COLD
        assert given.finds(A, other, key=KEY) == NOTHING


# ── what takes whose place ──


def test_a_cache_takes_the_place_of_those_it_extends_and_their_responses_lead_to_it(given: Given) -> None:
    """D-24; the key stays with what was made with it."""
    given.ends("resp_1", A[:40], key=KEY)
    given.ends("resp_2", A[:70], previous="resp_1")
    given.ends("resp_3", A, previous="resp_2")

    assert len(given.pool) == 1
    for name in ("resp_1", "resp_2", "resp_3"):
        assert given.finds(A, previous=name) == Found("hit", 100)
    assert given.finds(A, key=KEY) == Found("fresh", 100)


def test_two_continuations_of_one_response_are_two_caches(given: Given) -> None:
    """G-080, D-24."""
    left, right = A + ids(20, 2_000), A + ids(20, 3_000)
    given.ends("resp_1", A)
    given.ends("resp_left", left, previous="resp_1")
    given.ends("resp_right", right, previous="resp_1")

    assert len(given.pool) == 2
    assert given.finds(left, previous="resp_left") == Found("hit", 120)
    assert given.finds(right, previous="resp_right") == Found("hit", 120)
    assert given.finds(A, previous="resp_1") == Found("hit", 100)


def test_two_turns_that_read_the_same_are_both_found(given: Given) -> None:
    """D-24: the newer stays, with the names of both."""
    given.ends("resp_1", A, key=KEY)
    given.ends("resp_2", A, key="another-key")

    assert len(given.pool) == 1
    assert [given.finds(A, previous=name) for name in ("resp_1", "resp_2")] == [Found("hit", 100)] * 2
    assert [given.finds(A, key=key) for key in (KEY, "another-key")] == [Found("prefix_hit", 100)] * 2


def test_what_a_longer_cache_has_already_is_found_there_by_its_id_and_key(given: Given) -> None:
    """D-24: and it lasts as long as the newer would have."""
    given.ends("resp_long", A)
    given.clock.ms += 1_000_000

    given.ends("resp_short", A[:50], key=KEY)

    assert len(given.pool) == 1
    given.clock.ms += round(TTL_S * 1000)
    assert given.finds(A, previous="resp_short") == Found("hit", 100)
    assert given.finds(A, key=KEY) == Found("prefix_hit", 100)


def test_a_cache_that_cannot_be_cut_back_takes_no_shorter_ones_place(uncut: UncutEngine) -> None:
    """D-24: a fork of the earlier turn would have to be read again."""
    given = Given(uncut)
    given.ends("resp_1", A[:70])
    given.ends("resp_2", A, previous="resp_1")

    fork = A[:70] + B
    assert given.finds(fork, previous="resp_1") == Found("hit", 70)
    assert given.finds(A + B, previous="resp_2") == Found("hit", 100)
    given.accounts()


def test_of_caches_that_cannot_be_cut_back_the_same_is_kept_once(uncut: UncutEngine) -> None:
    """D-24."""
    given = Given(uncut)
    given.ends("resp_1", A)
    given.ends("resp_2", A)

    assert len(given.pool) == 1
    assert [given.finds(A + B, previous=name) for name in ("resp_1", "resp_2")] == [Found("hit", 100)] * 2
    given.accounts()


def test_only_so_many_names_lead_to_one_cache(given: Given) -> None:
    """The oldest are forgotten, so that a long chain takes no memory without end."""
    for number in range(MOST_NAMES + 1):
        given.ends(f"resp_{number}", A, key=f"key-number-{number}")

    assert given.finds(A, previous="resp_0") == Found("cold_replay", 100)
    assert given.finds(A, key="key-number-0") == Found("fresh", 100)
    assert given.finds(A, previous="resp_1") == Found("hit", 100)
    assert given.finds(A, key="key-number-1") == Found("prefix_hit", 100)


# ── what is cancelled ──


def test_a_cancelled_turn_leaves_what_it_read_without_a_name(given: Given) -> None:
    """D-28."""
    given.is_cancelled(A, read=64)

    assert given.finds(A) == Found("fresh", 64)
    assert given.finds(A, previous="resp_1") == Found("cold_replay", 64)


def test_a_prefill_too_short_to_be_used_is_not_kept(given: Given) -> None:
    """D-28."""
    given.is_cancelled(A, read=63)

    assert (len(given.pool), given.engine.kept) == (0, [])


# ── bounds ──


def test_with_one_entry_the_last_conversation_is_warm(engine: CountedEngine) -> None:
    """D-15, G-079, R-088."""
    given = Given(engine, most_entries=1)
    given.ends("resp_a", A)
    given.ends("resp_b", B)

    assert given.finds(A, previous="resp_a") == COLD
    assert given.finds(B, previous="resp_b") == Found("hit", 100)
    given.accounts()


def test_with_no_entries_nothing_is_kept(engine: CountedEngine) -> None:
    """D-15."""
    given = Given(engine, most_entries=0)
    given.ends("resp_a", A)
    given.is_cancelled(A, read=100)

    assert engine.kept == []
    given.accounts()


def test_the_longest_unused_leaves_first_when_there_are_too_many(engine: CountedEngine) -> None:
    """D-15: to be found is to be used."""
    given = Given(engine, most_entries=2)
    given.ends("resp_a", A)
    given.ends("resp_b", B)
    given.finds(A, previous="resp_a")
    given.ends("resp_c", ids(100, 7_000))

    assert given.finds(A, previous="resp_a") == Found("hit", 100)
    assert given.finds(B, previous="resp_b") == COLD
    given.accounts()


def test_the_caches_take_no_more_bytes_than_they_may(engine: CountedEngine) -> None:
    """D-15: one that takes all there is drives out as many as it has to."""
    given = Given(engine, most_bytes=300 * TOKEN_BYTES)
    for number in range(4):
        given.ends(f"resp_{number}", ids(100, number * 1_000))
    assert given.pool.size_bytes == 300 * TOKEN_BYTES

    given.ends("resp_big", ids(250, 9_000))

    assert (len(given.pool), given.pool.size_bytes) == (1, 250 * TOKEN_BYTES)
    given.accounts()


def test_a_cache_that_is_too_big_by_itself_drives_nobody_out(engine: CountedEngine) -> None:
    """D-15: neither by the bound of the caches, nor by the budget of all memory."""
    for given in (
        Given(engine, most_bytes=100 * TOKEN_BYTES),
        Given(engine, budget_bytes=100 * TOKEN_BYTES),
    ):
        given.ends("resp_a", A)
        given.ends("resp_big", B + A[:1])

        assert given.finds(A, previous="resp_a") == Found("hit", 100)
        given.accounts()
        given.pool.forget(engine)


def test_a_cache_takes_only_what_nobody_else_needs(engine: CountedEngine) -> None:
    """D-15: the memory of running turns and of weights is not touched."""
    given = Given(engine, budget_bytes=200 * TOKEN_BYTES)
    given.memory.take("running", 90 * TOKEN_BYTES)
    given.ends("resp_a", A)
    given.ends("resp_b", ids(111, 5_000))
    assert given.finds(A, previous="resp_a") == Found("hit", 100)

    given.ends("resp_c", ids(110, 7_000))

    assert given.memory.used == {"running": 90 * TOKEN_BYTES, "warm": 110 * TOKEN_BYTES}
    given.accounts()


@pytest.mark.parametrize(("tokens", "gone"), [(100, 1), (101, 2), (300, 3)])
def test_caches_make_way_for_turns_and_weights_as_far_as_it_takes(
    engine: CountedEngine, tokens: int, gone: int
) -> None:
    """D-15: the longest unused first, and no more than is missing."""
    given = Given(engine, budget_bytes=300 * TOKEN_BYTES)
    given.memory.reclaim_by(lambda missing_bytes: missing_bytes - given.pool.shrink(missing_bytes))
    for number in range(3):
        given.ends(f"resp_{number}", ids(100, number * 1_000))

    reservation = given.memory.ask("running", tokens * TOKEN_BYTES, lambda: None)

    assert reservation.granted
    classes = [given.finds(A, previous=f"resp_{number}").cache_class for number in range(3)]
    assert classes == ["cold_replay"] * gone + ["hit"] * (3 - gone)
    assert given.pool.shrink(10_000) == (3 - gone) * 100 * TOKEN_BYTES
    given.accounts()


def test_while_somebody_waits_for_memory_a_new_cache_drives_nobody_out(engine: CountedEngine) -> None:
    """D-15: whoever waits has taken of the pool what helps; emptying it would help nobody."""
    given = Given(engine, budget_bytes=300 * TOKEN_BYTES)
    given.memory.take("running", 200 * TOKEN_BYTES)
    given.ends("resp_a", A[:50])
    waiting = given.memory.ask("running", 200 * TOKEN_BYTES, lambda: None)

    given.ends("resp_b", B[:20])

    assert not waiting.granted
    assert given.finds(A, previous="resp_a") == Found("hit", 50)
    assert given.finds(B, previous="resp_b") == COLD
    given.accounts()


def test_a_model_that_goes_takes_its_caches_with_it(given: Given, uncut: UncutEngine) -> None:
    """R-060: and no other's."""
    given.ends("resp_a", A, given.scope(engine=uncut))
    given.ends("resp_b", B)

    given.pool.forget(uncut)
    given.ends("resp_c", A, given.scope(engine=uncut))

    assert uncut.kept == []
    assert given.finds(B, previous="resp_b") == Found("hit", 100)

"""What answers leave warm and for whom: scopes, histories that are sent again, limits (D-24, D-28)."""

from pathlib import Path
from typing import Any

import pytest

from tests.app.prefix_cache.services import (
    ADD_TOOL,
    ANSWER_TOKENS,
    HUNDRED,
    KEY,
    READ,
    Told,
    both_ways,
    cached_tokens,
    first_delta,
    prompt_tokens,
    running,
    words,
)
from tests.app.scripts import Json
from turnlog.app.settings import Settings
from turnlog.domain.errors import PreviousResponseNotFoundError


def said(role: str, text: str) -> Json:
    """One message of a history."""
    return {"role": role, "content": text}


# ── scopes ──


@pytest.mark.parametrize(
    "asked_by", [{}, {"prompt_cache_key": KEY}, {"cache_salt": "s"}], ids=["what was read", "key", "salt"]
)
async def test_two_owners_share_nothing(asked_by: dict[str, str]) -> None:
    """D-18, D-28: not even the count, so that nobody finds out what somebody else has asked."""
    async with running() as service:
        hers = await service.turn(HUNDRED, owner="ann", **asked_by)

        his = await service.turn(HUNDRED, owner="bob", **asked_by)
        with pytest.raises(PreviousResponseNotFoundError):
            await service.turn("more", hers.response.id, owner="bob", **asked_by)
        hers_again = await service.turn(HUNDRED, owner="ann", **asked_by)

        assert (his.cache_class, cached_tokens(his)) == ("fresh", 0)
        assert cached_tokens(hers_again) == prompt_tokens(HUNDRED)


@both_ways
async def test_two_salts_share_nothing(stream: bool) -> None:
    """R-099, R-401: no salt, the empty one and any other are three."""
    async with running() as service:
        salts: list[Json] = [{}, {"cache_salt": ""}, {"cache_salt": "s"}, {"cache_salt": "t"}]

        first = [await service.post(HUNDRED, prompt_cache_key=KEY, stream=stream, **salt) for salt in salts]
        again = [await service.post(HUNDRED, prompt_cache_key=KEY, stream=stream, **salt) for salt in salts]
        other_salt = await service.post("more", first[0].id, cache_salt="s", stream=stream)

        assert [answer.told.cached_tokens for answer in first] == [0] * 4
        assert [answer.told.cached_tokens for answer in again] == [prompt_tokens(HUNDRED)] * 4
        assert other_salt.told.cache == "cold_replay"


async def test_two_names_of_one_model_share_its_caches() -> None:
    """G-100, R-060: with one entry there is one cache for both names, never two."""
    async with running(names=("scripted", "alias"), warm_entries=1) as service:
        first = await service.post(HUNDRED)
        aside = await service.post(HUNDRED, model="alias")

        assert aside.told.cached_tokens == prompt_tokens(HUNDRED)
        assert (await service.post("more", first.id)).told == Told("hit", str(READ), READ)
        assert (service.warm("entries"), len(service.source.engines)) == (1, 1)


# ── what a client sends again ──


@both_ways
async def test_a_client_that_resends_its_history_is_spared_all_of_it(stream: bool) -> None:
    """D-28: without id and key, turn after turn."""
    async with running() as service:
        history = [said("user", HUNDRED)]
        spared = []
        for text in ("more", "still more", "the end"):
            answer = await service.post(history, stream=stream)
            spared.append(answer.told)
            history += [said("assistant", answer.body["output_text"]), said("user", text)]

        texts = [HUNDRED, "Hello", "more", "Hello"]
        counts = [0, prompt_tokens(*texts[:2]) - 1, prompt_tokens(*texts) - 1]
        assert spared == [
            Told("fresh", str(count) if count and not stream else None, count) for count in counts
        ]
        assert service.warm("entries") == 1


@both_ways
async def test_a_cancelled_turn_leaves_what_was_read(stream: bool) -> None:
    """D-28: also for the continuation of the response before it, which is a hit as ever."""
    async with running() as service:
        first = await service.post(HUNDRED)
        turn = await service.begin(f"{words(100, 'more')} hang", first.id)
        await first_delta(turn)
        turn.abort("client_abort")
        await turn.settled.wait()

        again = await service.post(f"{words(100, 'more')} hi", first.id, stream=stream)

        spared = prompt_tokens(HUNDRED, "Hello", words(100, "more")) - 1
        assert again.told == Told("hit", None if stream else str(spared), spared)


@pytest.mark.parametrize("text", ["boom", "exhaust", "refuse"])
async def test_a_failed_turn_leaves_nothing(text: str) -> None:
    """D-24, R-106: and takes nothing of what was there."""
    async with running() as service:
        first = await service.post(HUNDRED)
        entries, size_bytes = service.warm("entries"), service.warm("bytes")

        failed = await service.post(f"{text} {words(100, 'more')}", first.id)

        assert failed.status == 500
        assert (service.warm("entries"), service.warm("bytes")) == (entries, size_bytes)
        assert (await service.post("more", first.id)).told == Told("hit", str(READ), READ)


@both_ways
async def test_an_incomplete_turn_is_kept_warm(stream: bool) -> None:
    """D-24, D-02: it can be continued, so its cache is kept."""
    async with running() as service:
        cut = await service.post(f"cut {HUNDRED}")
        more = await service.post("more", cut.id, stream=stream)

        assert (cut.body["status"], more.told.cache) == ("incomplete", "hit")
        assert more.told.cached_tokens == prompt_tokens("cut", HUNDRED)


@both_ways
async def test_what_is_not_stored_is_kept_warm_all_the_same(stream: bool) -> None:
    """G-076, R-346, D-30: its id leads nowhere, its words are found."""
    async with running() as service:
        unstored = await service.post(HUNDRED, store=False, stream=stream)

        continued = await service.post("more", unstored.id, stream=stream)
        again = await service.post(f"{HUNDRED} more", stream=stream)

        assert (continued.status, continued.told) == (404, Told(None, None, None))
        assert again.told.cached_tokens == prompt_tokens(HUNDRED) - 1


# ── limits ──


@both_ways
async def test_what_does_not_fit_is_refused_before_the_stream_and_harms_no_cache(stream: bool) -> None:
    """G-119, R-235, R-240, R-241: JSON, also for a stream; a hit does not help."""
    async with running(warm_entries=1) as service:
        first = await service.post(HUNDRED)

        refused = await service.post(words(300, "more"), first.id, stream=stream)

        error = refused.body["error"]
        assert (refused.status, error["code"], error["param"]) == (400, "context_length_exceeded", None)
        assert "context_length_exceeded" in error["message"]
        assert refused.told == Told(None, None, None)
        assert (await service.post("more", first.id)).told == Told("hit", str(READ), READ)


@pytest.mark.parametrize(
    ("prompt", "asked", "budget"), [(390, None, 10), (390, 5, 5), (390, 50, 10), (399, 50, 1)]
)
async def test_the_answer_gets_what_the_prompt_leaves(prompt: int, asked: int | None, budget: int) -> None:
    """R-237, D-34: of a window of 400, the last token included."""
    async with running() as service:
        text = words(prompt - 2)
        assert prompt_tokens(text) == prompt

        turn = await service.turn(text, max_output_tokens=asked)

        assert turn.response.started
        assert turn.response.started.output_budget_tokens == budget


async def test_a_prompt_that_fills_the_window_leaves_no_room_for_an_answer() -> None:
    """R-237, D-34: P ≥ W is the capacity error."""
    async with running() as service:
        refused = await service.post(words(398))

        assert (refused.status, refused.body["error"]["code"]) == (400, "context_length_exceeded")


async def test_what_is_left_out_of_a_prompt_does_no_harm_to_what_is_warm() -> None:
    """D-24: `truncation: auto` makes another prompt, and a fork of what was there stays a hit."""
    async with running() as service:
        first = await service.post(words(120))
        second = await service.post(words(120, "b"), first.id, truncation="auto")

        third = await service.post(words(120, "c"), second.id, truncation="auto")
        fork = await service.post("more", second.id)

        stored = (await service.service.retrieval.response(third.id)).response
        assert stored.started
        assert stored.started.truncated_messages > 0
        assert third.told.cache == fork.told.cache == "hit"
        assert fork.told.cached_tokens == prompt_tokens(words(120), "Hello", words(120, "b")) + ANSWER_TOKENS


# ── settings ──


def test_the_bounds_have_their_defaults() -> None:
    """D-15, R-101."""
    chosen = Settings(db=Path("nowhere"))

    assert (chosen.warm_entries, chosen.warm_bytes, chosen.warm_ttl_s) == (32, None, 1_800)


@pytest.mark.parametrize("bounds", [{"warm_entries": 0}, {"warm_bytes": 0}, {"warm_bytes": 100}])
async def test_what_there_is_no_room_for_is_not_kept(bounds: dict[str, Any]) -> None:
    """D-15."""
    async with running(**bounds) as service:
        first = await service.post(HUNDRED, tools=[ADD_TOOL])

        assert (await service.post("more", first.id)).told.cache == "cold_replay"
        assert service.warm("entries") == 0


async def test_no_room_in_the_budget_is_no_room_for_caches() -> None:
    """D-15: by default they take a quarter of the memory budget."""
    async with running(memory_bytes=4 * 4 * READ - 4) as service:
        await service.turn(HUNDRED)
        assert service.warm("entries") == 0

    async with running(memory_bytes=4 * 4 * READ) as service:
        await service.turn(HUNDRED)
        assert service.warm("entries") == 1

"""What an answer says of the warm caches over HTTP, in JSON and in streams (R-242 … R-248)."""

from typing import Any

import pytest

from tests.app.prefix_cache.services import (
    ADD_TOOL,
    ANSWER_TOKENS,
    HUNDRED,
    KEY,
    READ,
    SCRIPT,
    Told,
    both_ways,
    prompt_tokens,
    running,
    words,
)
from tests.app.scripts import ADD_1, Json, calling, entry


def told(cache: str, cached_tokens: int, *, stream: bool) -> Told:
    """What an answer says: a stream names no count in its headers, and nobody one of 0 (R-247)."""
    count = str(cached_tokens) if cached_tokens and not stream else None
    return Told(cache, count, cached_tokens)


# ── continuations ──


@both_ways
async def test_a_turn_that_continues_a_warm_one_is_a_hit(stream: bool) -> None:
    """R-242, R-243, R-246, R-247: at each step all is spared that the turn before has read and written."""
    async with running() as service:
        first = await service.post(HUNDRED, stream=stream)
        second = await service.post("more", first.id, stream=stream)
        third = await service.post("still more", second.id, stream=stream)

        assert [answer.told for answer in (first, second, third)] == [
            told("fresh", 0, stream=stream),
            told("hit", READ, stream=stream),
            told("hit", READ + prompt_tokens("more") + ANSWER_TOKENS, stream=stream),
        ]


@both_ways
async def test_a_turn_whose_cache_is_not_there_is_a_cold_replay(stream: bool) -> None:
    """R-243, G-079: with one entry the other conversation has taken its place."""
    async with running(warm_entries=1) as service:
        first = await service.post(HUNDRED)
        await service.post(words(100, "other"))

        second = await service.post("more", first.id, stream=stream)

        assert (second.status, second.told) == (200, told("cold_replay", 0, stream=stream))


async def test_with_room_for_more_the_other_conversation_stays_warm() -> None:
    """D-15."""
    async with running() as service:
        first = await service.post(HUNDRED)
        await service.post(words(100, "other"))

        assert (await service.post("more", first.id)).told == told("hit", READ, stream=False)


@both_ways
async def test_the_class_of_a_continuation_does_not_depend_on_the_count(stream: bool) -> None:
    """R-246, R-247, D-28: a hit that spared nothing is a hit, a cold replay that was spared much is none."""
    async with running() as service:
        first = await service.post(HUNDRED)

        # No instructions and empty ones differ, but the prompt does not.
        cold = await service.post("more", first.id, instructions="", stream=stream)
        useless = await service.post("more", first.id, tools=[ADD_TOOL], stream=stream)

        assert cold.told == told("cold_replay", READ, stream=stream)
        assert useless.told == told("hit", 0, stream=stream)


@both_ways
@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
async def test_a_continuation_by_one_message_of_another_role_is_a_hit(role: str, stream: bool) -> None:
    """G-088, R-227, R-228."""
    async with running() as service:
        first = await service.post(HUNDRED)

        second = await service.post([{"role": role, "content": "more"}], first.id, stream=stream)

        assert (second.status, second.told.cache) == (200, "hit")


@both_ways
async def test_a_continuation_by_several_messages_is_kept_warm_like_any_other(stream: bool) -> None:
    """G-098, R-231."""
    async with running() as service:
        turn = await service.post(HUNDRED)
        for text in ("more", "still more"):
            turn = await service.post(text, turn.id)
        several = [{"role": "user", "content": text} for text in ("this", "and that")]

        turn = await service.post(several, turn.id, stream=stream)
        after = await service.post("the end", turn.id, stream=stream)

        assert turn.told.cache == "hit"
        texts = (HUNDRED, "Hello", "more", "Hello", "still more", "Hello", "this", "and that", "Hello")
        assert after.told == told("hit", prompt_tokens(*texts) - 1, stream=stream)


# ── instructions ──


@both_ways
async def test_instructions_are_inherited_and_find_the_cache(stream: bool) -> None:
    """G-081, G-083, G-084, R-090, R-149, R-156: the empty ones as well; the request's own are used."""
    async with running() as service:
        empty = await service.post(HUNDRED, instructions="")
        kind = await service.post(HUNDRED, instructions="be kind")

        inherited = [await service.post("more", each.id, stream=stream) for each in (empty, kind)]
        changed = await service.post("more", kind.id, instructions="be rude", stream=stream)

        assert [answer.told.cache for answer in inherited] == ["hit", "hit"]
        assert [answer.body["instructions"] for answer in inherited] == ["", "be kind"]
        assert (changed.told, changed.body["instructions"]) == (
            told("cold_replay", 0, stream=stream),
            "be rude",
        )


async def test_instructions_are_inherited_when_the_cache_is_gone() -> None:
    """G-082, R-153: by the prompt, the object and the record of the new turn."""
    async with running(warm_entries=0) as service:
        first = await service.post("hi", instructions="be kind")
        second = await service.post("more", first.id)
        stored = (await service.service.retrieval.response(second.id)).response

        assert (second.told.cache, second.body["instructions"]) == ("cold_replay", "be kind")
        assert stored.created.instructions == "be kind"
        assert stored.started
        assert stored.started.prompt.tokens == prompt_tokens("be kind", "hi", "Hello", "more")


# ── keys ──


@both_ways
async def test_a_key_gives_a_prefix_hit_that_a_stream_calls_fresh(stream: bool) -> None:
    """G-086, G-092, R-243, R-245: the count in a stream's last event is what counts."""
    async with running() as service:
        await service.post("hi", prompt_cache_key=KEY)
        history = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "more"},
        ]

        again = await service.post(history, prompt_cache_key=KEY, stream=stream)

        spared = prompt_tokens("hi") + ANSWER_TOKENS
        assert again.told == told("fresh" if stream else "prefix_hit", spared, stream=stream)


SYSTEM: Json = {"role": "system", "content": "be kind"}
SPOILT: dict[str, tuple[Json, Json]] = {
    "by tools": ({"tools": [ADD_TOOL]}, {}),
    "by what is said first": ({}, {"input": [SYSTEM, {"role": "user", "content": "hi"}]}),
    "by instructions, so that it is not found": ({}, {"instructions": "be kind"}),
}


@both_ways
@pytest.mark.parametrize("spoilt", SPOILT)
async def test_a_prefix_hit_that_spared_nothing_is_called_fresh(spoilt: str, stream: bool) -> None:
    """G-091, R-244."""
    then, now = SPOILT[spoilt]
    async with running() as service:
        await service.post("hi", prompt_cache_key=KEY, **then)

        asked: Json = {"said": "hi", "prompt_cache_key": KEY, "stream": stream} | now
        again = await service.post(**asked)

        assert again.told == told("fresh", 0, stream=stream)


@both_ways
async def test_the_id_counts_and_not_the_key(stream: bool) -> None:
    """G-089, G-090, R-091, R-093: B keeps the key, and A never gets it."""
    async with running() as service:
        a = await service.post("about a", instructions="a")
        b = await service.post("about b", prompt_cache_key=KEY)

        continued = await service.post("more", a.id, instructions="b", prompt_cache_key=KEY, stream=stream)
        keyed = await service.post("about b", prompt_cache_key=KEY)

        assert continued.told == told("cold_replay", 0, stream=stream)
        assert (await service.post("more", b.id)).told.cache == "hit"
        assert keyed.told == told("prefix_hit", prompt_tokens("about b"), stream=False)
        assert (await service.post("more", prompt_cache_key=KEY, instructions="b")).told.cache == "fresh"


@both_ways
async def test_keys_differ_and_some_are_too_short(stream: bool) -> None:
    """G-093, R-094, R-095."""
    async with running() as service:
        found = []
        for key in ("", "1234567", "12345678", "12345679"):
            await service.post(f"hi {key}", prompt_cache_key=key)
            again = await service.post(f"hi {key}", prompt_cache_key=key, stream=stream)
            found.append(again.told)

        spared = prompt_tokens("hi 12345678")
        hit = told("fresh" if stream else "prefix_hit", spared, stream=stream)
        assert found == [*[told("fresh", 0, stream=stream)] * 2, hit, hit]


# ── answers without headers, and failures with them ──


@both_ways
async def test_a_refused_request_says_nothing_of_caches(stream: bool) -> None:
    """R-248, D-26: what is refused before the look-up, and that is whatever is refused."""
    async with running() as service:
        first = await service.post(HUNDRED)
        refused = [
            await service.post("hi", "resp_unknown", stream=stream),
            await service.post("hi", first.id, temperature="warm", stream=stream),
            await service.post("hi", first.id, model="unknown", stream=stream),
            await service.post(words(500), first.id, stream=stream),
        ]

        assert [answer.status for answer in refused] == [404, 400, 404, 400]
        assert {answer.told for answer in refused} == {Told(None, None, None)}


FAILING: list[tuple[str, int]] = [("boom", 500), ("exhaust", 500), ("refuse", 500), ("wait", 504)]


@pytest.mark.parametrize(("text", "status"), FAILING)
async def test_a_turn_that_fails_says_what_was_found(text: str, status: int) -> None:
    """R-248, D-32."""
    async with running(token_timeout_s=2 if text == "wait" else 60) as service:
        first = await service.post(HUNDRED)

        failed = await service.post(text, first.id)

        assert (failed.status, failed.told.cache) == (status, "hit")
        assert failed.told.counted in (None, str(READ))


async def test_reading_a_response_says_nothing_of_caches() -> None:
    """R-248."""
    async with running() as service:
        first = await service.post(HUNDRED)

        read = await service.http.get(f"/v1/responses/{first.id}")

        assert read.status_code == 200
        assert not {"x-session-cache", "x-cached-tokens"} & read.headers.keys()


@pytest.mark.parametrize(("class_told", "scripted"), [("prefix_hit", None), ("prefix_hit", 5), ("fresh", 0)])
async def test_only_a_count_of_exactly_0_makes_a_prefix_hit_fresh(
    class_told: str, scripted: int | None
) -> None:
    """R-244, R-247: an engine that says nothing of its cache has not said that it was no use."""
    end: dict[str, Any] = {"finish_reason": "stop", "cached_tokens": scripted}
    script = {"turns": [entry("again", {"text": "Hi"}, {"end": end}), *SCRIPT["turns"]]}
    async with running(script) as service:
        await service.post("hi", prompt_cache_key=KEY)

        again = await service.post("again", prompt_cache_key=KEY)

        assert again.told[:2] == (class_told, str(scripted) if scripted else None)


async def test_a_rule_that_is_broken_leaves_the_cache_warm() -> None:
    """G-097, R-102: the correct continuation is a hit afterwards."""
    async with running(warm_entries=1) as service:
        called = await service.post(f"add {HUNDRED}", tools=[ADD_TOOL])
        refused = await service.post("and then?", called.id, tools=[ADD_TOOL])
        output = {"type": "function_call_output", "call_id": _call_id(called.body), "output": "3"}

        answered = await service.post([output], called.id, tools=[ADD_TOOL])

        assert (refused.status, refused.told) == (400, Told(None, None, None))
        assert (answered.status, answered.told.cache) == (200, "hit")


@both_ways
async def test_an_echoed_call_with_other_arguments_finds_the_cache(stream: bool) -> None:
    """G-102, R-184: the echo is stripped, and the prompt has the arguments that were stored."""
    script = SCRIPT | {"turns": [calling("call", ADD_1), *SCRIPT["turns"]]}
    async with running(script) as service:
        called = await service.post(f"call {HUNDRED}", tools=[ADD_TOOL])
        call_id = _call_id(called.body)
        echo = {"type": "function_call", "call_id": call_id, "name": "add", "arguments": '{ "a": 2 }'}
        output = {"type": "function_call_output", "call_id": call_id, "output": "3"}

        answers = [
            await service.post(given, called.id, tools=[ADD_TOOL], stream=stream)
            for given in ([echo, output], [output])
        ]

        assert [answer.told.cache for answer in answers] == ["hit", "hit"]
        stored = [(await service.service.retrieval.response(answer.id)).response for answer in answers]
        assert len({each.started.prompt.digest for each in stored if each.started}) == 1


def _call_id(body: Json) -> str:
    call = next(item for item in body["output"] if item["type"] == "function_call")
    return str(call["call_id"])

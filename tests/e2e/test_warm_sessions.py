"""Warm sessions on a real engine, with the tiny random model: what is spared, and what stays the same."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.serving import LONG_S, RunningServer, serving
from tests.tiny_model import make_tiny_model
from turnlog.adapters.eventstore.store import open_reader
from turnlog.domain.conversation import token_log
from turnlog.domain.response import fold_stored

Json = dict[str, Any]

TURNS = 8
TEXTS = [f"Tell me more, {number}." for number in range(TURNS)]


class Server(NamedTuple):
    """A server with the tiny model, and a client of it."""

    running: RunningServer
    http: httpx.Client

    def ask(self, said: str | Sequence[Json], previous: str | None = None, **fields: Any) -> httpx.Response:
        """A greedy answer of a few tokens."""
        body = {"model": "tiny", "input": said, "previous_response_id": previous, "temperature": 0}
        answer = self.http.post("/v1/responses", json=body | {"max_output_tokens": 8} | fields)
        assert answer.status_code == 200, answer.text
        return answer

    def chain(self, texts: Sequence[str], previous: str | None = None, **fields: Any) -> list[Json]:
        """A conversation by `previous_response_id`."""
        answers: list[Json] = []
        for text in texts:
            answers.append(self.ask(text, previous, **fields).json())
            previous = answers[-1]["id"]
        return answers

    def prompt_digests(self, answers: Sequence[Json]) -> list[str]:
        """What the model has read for each, as the log says it."""
        with closing(open_reader(self.running.database)) as reader:
            stored = reader.chain(answers[-1]["id"], limit=len(answers)).result()
        responses = [fold_stored(recorded.event for recorded in turn) for turn in stored]
        assert [response.id for response in responses] == [answer["id"] for answer in answers]
        return [response.started.prompt.digest for response in responses if response.started]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """One that keeps caches, and one that keeps none. Strict, so that what was answered can be read."""
    folder = tmp_path_factory.mktemp("warm")
    model = f"tiny={make_tiny_model(folder / 'tiny')}"
    strict = {"TURNLOG_DURABILITY": "strict", "TURNLOG_CACHE": str(folder)}
    with (
        serving(folder / "warm.db", "--model", model, **strict) as warm,
        serving(folder / "cold.db", "--model", model, **strict, TURNLOG_WARM_ENTRIES="0") as cold,
        warm.client(timeout_s=LONG_S) as warm_http,
        cold.client(timeout_s=LONG_S) as cold_http,
    ):
        yield Server(warm, warm_http), Server(cold, cold_http)


@pytest.fixture
def warm(servers: tuple[Server, Server]) -> Server:
    """The one that keeps caches."""
    return servers[0]


@pytest.fixture
def cold(servers: tuple[Server, Server]) -> Server:
    """The one that keeps none."""
    return servers[1]


def output(answers: Sequence[Json]) -> list[str]:
    """What was answered."""
    return [answer["output_text"] for answer in answers]


def cached(answer: Json) -> int:
    """How many tokens were spared."""
    return int(answer["usage"]["input_tokens_details"]["cached_tokens"])


def test_a_warm_chain_reads_and_says_what_a_cold_one_does(warm: Server, cold: Server) -> None:
    """D-24: at each step all is spared that was read and written before; prompts and answers are the same."""
    hot, slow = warm.chain(TEXTS), cold.chain(TEXTS)

    assert (output(hot), warm.prompt_digests(hot)) == (output(slow), cold.prompt_digests(slow))
    assert [cached(answer) for answer in slow] == [0] * TURNS
    totals = [answer["usage"]["total_tokens"] for answer in hot]
    assert [cached(answer) for answer in hot[1:]] == totals[:-1]


def test_a_hundred_turns_are_warm_at_every_step_and_say_what_a_cold_replay_says(tmp_path: Path) -> None:
    """D-24: the check is a replay by a model that has just been loaded and knows nothing."""
    model = make_tiny_model(tmp_path / "tiny", context_window_tokens=8_192)
    with (
        serving(tmp_path / "turnlog.db", "--model", f"tiny={model}", TURNLOG_CACHE=str(tmp_path)) as running,
        running.client(timeout_s=LONG_S) as http,
    ):
        server = Server(running, http)
        answers = server.chain([f"And then, {number}?" for number in range(100)])

        totals = [answer["usage"]["total_tokens"] for answer in answers]
        assert [cached(answer) for answer in answers[1:]] == totals[:-1]
        for number in (99, 50):
            http.post("/v1/models/unload", json={"name": "tiny"}).raise_for_status()
            verdict = http.post(
                f"/v1/responses/{answers[number]['id']}/replay", json={"kind": "check"}
            ).json()
            assert verdict["identical"], verdict
            assert cached(http.get(f"/v1/responses/{verdict['replay']}").json()) == 0


def test_two_continuations_at_once_share_one_cache_and_say_what_cold_ones_say(
    warm: Server, cold: Server
) -> None:
    """G-080: in one batch, and the response they come from can be continued afterwards too."""
    salt = {"cache_salt": "forks"}
    first, cold_first = warm.chain(TEXTS[:2], **salt)[-1], cold.chain(TEXTS[:2], **salt)[-1]
    forks = ["And the left?", "And the right, if there is one?"]

    with ThreadPoolExecutor(2) as threads:
        begun = [threads.submit(warm.ask, text, first["id"], **salt) for text in forks]
        hot = [each.result() for each in begun]
    later = warm.ask("And the middle?", first["id"], **salt)

    assert [answer.headers["x-session-cache"] for answer in (*hot, later)] == ["hit"] * 3
    spared = first["usage"]["total_tokens"]
    assert [cached(answer.json()) for answer in hot] == [spared] * 2
    # The forks have left longer ones, which begin as this question does.
    assert cached(later.json()) >= spared
    slow = [cold.ask(text, cold_first["id"], **salt).json() for text in (*forks, "And the middle?")]
    assert output([answer.json() for answer in (*hot, later)]) == output(slow)


def test_a_client_that_resends_its_history_is_spared_all_of_it(warm: Server) -> None:
    """D-28, decision 11: its echoes stand for the very tokens that the model wrote."""
    history: list[Json] = []
    answers: list[Json] = []
    for text in ("Something that is longer than the 64 tokens that make a cache worth it.", *TEXTS[:3]):
        history.append({"role": "user", "content": text})
        answers.append(warm.ask(history).json())
        history.append({"role": "assistant", "content": answers[-1]["output_text"]})

    totals = [answer["usage"]["total_tokens"] for answer in answers]
    assert [cached(answer) for answer in answers[1:]] == totals[:-1]


def test_two_salts_are_read_twice(warm: Server) -> None:
    """R-099: the same words, and nothing is shared; nor is it told that somebody else has said them."""
    question = "A question that is long enough to be found by its first 64 tokens, whoever asks it. Is it?"

    counts = [cached(warm.ask(question, cache_salt=salt).json()) for salt in ("one", "two", "one")]

    assert counts[:2] == [0, 0]
    assert counts[2] >= 64


def test_the_log_of_a_warm_chain_gives_its_prompts_back(warm: Server) -> None:
    """Each prompt is told by what it shares with the turn before it, and can be proved by its digest."""
    answers = warm.chain(TEXTS[:5], cache_salt="log")

    with closing(open_reader(warm.running.database)) as reader:
        stored = reader.chain(answers[-1]["id"], limit=len(answers)).result()
    chain = [fold_stored(recorded.event for recorded in turn) for turn in stored]

    # It raises if a digest is not that of what was rebuilt.
    lengths = [len(token_log(chain[: number + 1])) for number in range(len(chain))]
    assert lengths == [answer["usage"]["total_tokens"] for answer in answers]
    shared = [response.started.prompt.shared for response in chain if response.started]
    assert shared == [0, *lengths[:-1]]


def test_a_chat_that_sends_its_history_is_spared_all_of_it(warm: Server) -> None:
    """Decision 11: on the surface of Chat Completions, too, and what was said there is known here."""
    history: list[Json] = []
    usages: list[Json] = []
    for text in ("A chat that begins with more than the 64 tokens that make a cache worth it.", *TEXTS[:3]):
        history.append({"role": "user", "content": text})
        body = {"model": "tiny", "messages": history, "temperature": 0, "max_tokens": 8}
        answer = warm.http.post("/v1/chat/completions", json=body).raise_for_status().json()
        history.append(answer["choices"][0]["message"])
        usages.append(answer["usage"])

    spared = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert spared[1:] == [usage["total_tokens"] for usage in usages[:-1]]


def test_a_question_has_the_same_answer_on_both_surfaces(warm: Server) -> None:
    """At temperature 0, token for token."""
    question = "What is the same, whoever asks?"
    body = {"model": "tiny", "temperature": 0, "max_tokens": 8, "logprobs": True, "cache_salt": "chat"}
    chat = warm.http.post(
        "/v1/chat/completions", json=body | {"messages": [{"role": "user", "content": question}]}
    )
    choice = chat.raise_for_status().json()["choices"][0]

    include = ["message.output_text.logprobs"]
    answer = warm.ask(question, include=include, cache_salt="responses").json()

    (part,) = answer["output"][0]["content"]
    assert choice["message"]["content"] == part["text"]
    assert choice["logprobs"]["content"] == part["logprobs"]

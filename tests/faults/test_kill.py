"""SIGKILL in each state of a turn's life and at random, and what the next server makes of it.

An event is acknowledged once `GET /v1/responses/{id}/events` has told it. By best effort (D-22) an answer may
have been read whole and be lost, if its write had not landed; then its turn is failed, never half an answer.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from threading import Semaphore

import httpx
import msgspec
import pytest

from tests.adapters.eventstore.locker import locked_by_another_process
from tests.adapters.eventstore.stories import opened
from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create, stream
from tests.app.scripts import HELLO, SCRIPT, STOP, entry, write_script
from tests.app.services import asked, running
from tests.faults.witness import (
    Json,
    Listener,
    acknowledged,
    check_whole,
    continued,
    error_code,
    events,
    kill,
    last_frame,
    listening,
    names,
    replay,
    scripted,
    stories,
)
from tests.listed import listed
from tests.serving import RunningServer
from tests.waiting import SOON_S, until
from turnlog.adapters.eventstore.store import open_reader
from turnlog.domain.events import Recorded, TurnCommitted, TurnFailed

ONE_AT_A_TIME = SCRIPT | {"concurrency": 1}
LOST_TURNS = 500
NOT_COMPLETED = (400, "previous_response_not_completed")


def test_turns_that_were_queued_or_running_are_failed_by_the_next_server(tmp_path: Path) -> None:
    """D-12, D-26: created and in_progress."""
    with (
        scripted(tmp_path, ONE_AT_A_TIME) as server,
        server.http as http,
        listening(http, "hang") as running_turn,
        listening(http, "hi") as queued,
    ):
        running_turn.until("output_text.delta")
        queued.until("response.in_progress")
        seen = {
            turn.response_id: acknowledged(http, turn.response_id, last)
            for turn, last in ((running_turn, "item_extended"), (queued, "created"))
        }
        kill(server)

    with scripted(tmp_path, ONE_AT_A_TIME) as server, server.http as http:
        for turn in (running_turn, queued):
            stored = events(http, turn.response_id)
            told = replay(http, turn.response_id)

            before = seen[turn.response_id]
            assert stored[: len(before)] == before
            assert (stored[-1]["event"], stored[-1]["data"]["reason"]) == (
                "response.failed.v1",
                "server_restart",
            )
            assert told.startswith(turn.told)
            assert read_stream(told)[-1]["response"]["incomplete_details"] == {"reason": "server_restart"}
            assert error_code(continued(http, turn.response_id)) == NOT_COMPLETED
        assert names(events(http, queued.response_id)) == ["created", "failed"]
        assert create(http, "hi")["status"] == "completed"


def test_what_was_persisted_or_failed_is_the_same_after_a_kill(tmp_path: Path) -> None:
    """D-12, R-361: and the chain goes on from what was completed."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        live = {text: stream(http, text) for text in ("think", "cut", "boom")}
        ids = {text: read_stream(told)[0]["response"]["id"] for text, told in live.items()}
        last = {"think": "persisted", "cut": "persisted", "boom": "failed"}
        seen = {text: acknowledged(http, ids[text], last[text]) for text in live}
        kill(server)

    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        stored = {text: events(http, ids[text]) for text in live}
        told = {text: replay(http, ids[text]) for text in live}
        answers = {text: continued(http, ids[text]).status_code for text in live}

    assert stored == seen
    assert told == live
    assert answers == {"think": 200, "cut": 200, "boom": 400}


def test_of_the_turns_under_one_idempotency_key_one_ends_well(tmp_path: Path) -> None:
    """T2-26: the first server is killed while it runs the turn, the next one when it has stored it."""
    headers = {"Idempotency-Key": "k"}
    body = {"model": "scripted", "input": "slow", "stream": True}
    with (
        scripted(tmp_path, SCRIPT) as server,
        server.http as http,
        http.stream("POST", "/v1/responses", json=body, headers=headers) as answer,
    ):
        lost = Listener(answer)
        lost.until("output_text.delta")
        acknowledged(http, lost.response_id, "created")
        kill(server)
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        first = http.post("/v1/responses", json=body, headers=headers)
        acknowledged(http, last_frame(first.content)["response"]["id"], "committed")
        kill(server)

    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        again = http.post("/v1/responses", json=body, headers=headers)
    kept = stories(tmp_path / "turnlog.db")

    assert "idempotent-replayed" not in first.headers
    assert (again.headers["idempotent-replayed"], again.content) == ("true", first.content)
    ends = [type(recorded.event) for story in kept.values() for recorded in story]
    assert (ends.count(TurnFailed), ends.count(TurnCommitted)) == (1, 1)


@pytest.mark.parametrize("hard_limit_ms", ["0", "20"], ids=["committed", "hard_timed_out"])
def test_an_answer_whose_write_had_not_landed_is_lost_and_the_log_says_so(
    tmp_path: Path, hard_limit_ms: str
) -> None:
    """D-22, R-356, R-361: its client has read it to the end, and its turn becomes `failed`."""
    environ = {"MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS": hard_limit_ms}
    with (
        scripted(tmp_path, ONE_AT_A_TIME, **environ) as server,
        server.http as http,
        listening(http, "hang") as first,
        listening(http, "hi") as second,
    ):
        first.until("output_text.delta")
        second.until("response.in_progress")
        until(lambda: events(http, second.response_id))
        with locked_by_another_process(server.database):
            first.hang_up()
            second.until("[DONE]")
            if hard_limit_ms != "0":
                until(lambda: http.get(f"/v1/responses/{second.response_id}").status_code == 503)
            kill(server)

    with scripted(tmp_path, ONE_AT_A_TIME) as server, server.http as http:
        told = replay(http, second.response_id)
        refused = error_code(continued(http, second.response_id))
        metrics = http.get("/metrics").text
    kept = stories(tmp_path / "turnlog.db")

    assert 'turnlog_turns_total{model="scripted",reason="server_restart",state="failed"}' in metrics
    assert last_frame(second.told)["response"]["status"] == "completed"
    assert last_frame(told)["response"]["incomplete_details"] == {"reason": "server_restart"}
    assert refused == NOT_COMPLETED
    for story in kept.values():
        check_whole(story)


async def test_wherever_a_log_was_cut_the_next_server_ends_each_turn_once(tmp_path: Path) -> None:
    """A kill between any two events. A stored commit counts as persisted, and nothing else changes."""
    for folder in ("good", "bad"):
        (tmp_path / folder).mkdir()
    whole = [await _story(tmp_path / "good", "think"), await _story(tmp_path / "bad", "boom")]
    cuts = [story[:length] for story in whole for length in range(1, len(story) + 1)]
    cuts = [_renamed(cut, number) for number, cut in enumerate(cuts, start=1)]
    with opened(tmp_path / "turnlog.db") as store:
        for cut in cuts:
            store.journal.append(cut).result()

    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        for cut in cuts:
            read_stream(replay(http, cut[0].response_id))
    kept = stories(tmp_path / "turnlog.db")

    assert kept.keys() == {cut[0].response_id for cut in cuts}
    for cut in cuts:
        story = kept[cut[0].response_id]
        check_whole(story)
        assert story[: len(cut)] == cut
        if any(isinstance(recorded.event, TurnCommitted | TurnFailed) for recorded in cut):
            assert story == cut
        else:
            assert isinstance(ending := story[-1].event, TurnFailed)
            assert ending.reason == "server_restart"


async def test_a_server_that_is_killed_while_it_recovers_leaves_the_rest_to_the_next_one(
    tmp_path: Path,
) -> None:
    """Ending lost turns can be broken off anywhere, and no turn is ended twice."""
    (tmp_path / "good").mkdir()
    begun = (await _story(tmp_path / "good", "think"))[:3]
    lost = [_renamed(begun, number) for number in range(LOST_TURNS)]
    with opened(tmp_path / "turnlog.db") as store:
        wait([store.journal.append(turn) for turn in lost])

    _kill_at_the_first_recovered_turn(store.path, write_script(tmp_path))
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        told = read_stream(replay(http, lost[-1][0].response_id))
    kept = stories(tmp_path / "turnlog.db")

    assert told[-1]["response"]["incomplete_details"] == {"reason": "server_restart"}
    assert len(kept) == LOST_TURNS
    for story in kept.values():
        check_whole(story)


def _kill_at_the_first_recovered_turn(database: Path, script: Path) -> None:
    """Start a server and kill it before it answers."""
    arguments = ("--port", "0", "--engine", "scripted", "--script", script, "--db", database)
    command = [sys.executable, "-m", "turnlog.app", "serve", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as recovering:
        until(lambda: _failed(database))
        recovering.kill()


def _failed(database: Path) -> int:
    """How many turns, of a few, are failed by now."""
    with closing(open_reader(database)) as reader:
        return len(listed(reader, state="failed"))


async def _story(folder: Path, text: str) -> list[Recorded]:
    """What is stored of one whole turn."""
    async with running(folder) as service:
        turn = await service.turns.begin(asked(text))
        await turn.settled.wait()
    (story,) = stories(folder / "turnlog.db").values()
    return story


def _renamed(story: Sequence[Recorded], number: int) -> list[Recorded]:
    """The same story of another response with other items."""
    text = re.sub(rb"_[0-9a-f]{32}", b"_%032x" % number, msgspec.json.encode(story))
    return msgspec.json.decode(text, type=list[Recorded])


# ── at random ─────────────────────────────────────────────────────────────────────────────────────

KILLED_TURNS = 200
CLIENTS = 8
PLACES = 5
"""Fewer than clients, so that some turns are killed in the queue."""

MOST_CHUNKS = 90
"""A server is killed at the latest when its clients have read so many pieces of their streams."""

PAUSE: Json = {"sleep_ms": 10}
"""Long enough that some turns are killed with open items in the log: deltas are gathered for 100 ms."""

BUSY = {
    "concurrency": PLACES,
    "turns": [
        entry("think", *[{"reasoning": "hm "}, PAUSE] * 15, {"text": "Hi"}, STOP),
        entry("boom", {"text": "Hel"}, PAUSE, {"raise": "it broke"}),
        entry("talk", *[{"text": f"{number} "} if number % 2 else PAUSE for number in range(40)], STOP),
        HELLO,
    ],
}


@dataclass
class Witness:
    """What one client knows of one turn."""

    told: bytes = b""
    seen: list[Json] = field(default_factory=list)
    response_id: str = ""
    ended: bool = False


def test_no_acknowledged_event_is_lost_in_two_hundred_kills(tmp_path: Path) -> None:
    """D-12, D-22. Not two hundred processes: two hundred turns.

    Each server has eight clients that hold conversations, five turns run at once, and SIGKILL comes when
    the clients have read a random number of pieces. A server that dies takes up to eight turns with it,
    queued, running or about to be stored, so some thirty servers on one log make two hundred killed turns.
    """
    chance = Random(4)
    killed = 0
    witnesses: list[Witness] = []
    while killed < KILLED_TURNS:
        with scripted(tmp_path, BUSY) as server, server.http as http:
            survivors = _check(http, witnesses)
            witnesses = _killed_while_they_talk(server, chance, survivors)
            killed += sum(not witness.ended for witness in witnesses)

    with scripted(tmp_path, BUSY) as server, server.http as http:
        _check(http, witnesses)
        assert server.stop() == 0
    for story in stories(tmp_path / "turnlog.db").values():
        check_whole(story)


def _killed_while_they_talk(server: RunningServer, chance: Random, survivors: list[str]) -> list[Witness]:
    """Let clients talk until the server is killed; what they know then of turns that were accepted."""
    chunks = Semaphore(0)
    with ThreadPoolExecutor(CLIENTS) as clients:
        talks = [
            clients.submit(_talk, server, Random(chance.random()), chance.choice(survivors or [None]), chunks)
            for _ in range(CLIENTS)
        ]
        for _ in range(chance.randint(1, MOST_CHUNKS)):
            assert chunks.acquire(timeout=SOON_S), "no client gets a piece of a stream any more"
        kill(server)
    return [witness for talk in talks for witness in talk.result() if witness.response_id]


def _talk(server: RunningServer, chance: Random, previous: str | None, chunks: Semaphore) -> list[Witness]:
    """Hold a conversation until the server is gone, and look at the log now and then."""
    witnesses: list[Witness] = []
    with suppress(httpx.TransportError), server.http as http:
        while True:
            witnesses.append(witness := Witness())
            text = chance.choice(["think", "talk", "boom"])
            with listening(http, text, previous_response_id=previous) as listener:
                for _ in listener:
                    witness.told, witness.ended = listener.told, listener.ended
                    witness.response_id = listener.response_id
                    chunks.release()
                    if chance.random() < 0.2:
                        witness.seen = events(http, witness.response_id)
            if last_frame(witness.told)["type"] == "response.completed":
                previous = witness.response_id
    return witnesses


def _check(http: httpx.Client, witnesses: list[Witness]) -> list[str]:
    """Hold what a new server says against what the clients know; the responses that can be continued."""
    with ThreadPoolExecutor(CLIENTS) as checkers:
        completed = checkers.map(partial(_check_one, http), witnesses)
        return [witness.response_id for witness, good in zip(witnesses, completed, strict=True) if good]


def _check_one(http: httpx.Client, witness: Witness) -> bool:
    """Whether the turn is completed, once all that must hold of it has been found to hold."""
    stored = events(http, witness.response_id)
    assert stored[: len(witness.seen)] == witness.seen
    if not stored:
        return False  # by best effort: nothing of it had landed
    assert [event["version"] for event in stored] == list(range(1, len(stored) + 1))
    told = replay(http, witness.response_id)
    ending = read_stream(told)[-1]["response"]
    answer = continued(http, witness.response_id)
    if ending["incomplete_details"] == {"reason": "server_restart"}:
        _check_cut_short(told, witness.told)
    else:
        assert told.startswith(witness.told)
    if ending["status"] == "completed":
        assert answer.status_code == 200
        return True
    assert error_code(answer) == NOT_COMPLETED
    return False


def _check_cut_short(told: bytes, live: bytes) -> None:
    """A lost turn's stream is what was told live, up to where storing had come, and then closes."""
    heard = live.split(b"\n\n")[:-1]
    frames = told.split(b"\n\n")[:-2]
    same = next((n for n, frame in enumerate(heard) if frame != frames[n]), len(heard))
    if same < len(heard):
        closing = [frame.split(b"\n")[0] for frame in frames[same:]]
        assert closing[-2:] == [b"event: error", b"event: response.failed"]
        assert all(name.endswith(b".done") for name in closing[:-2])

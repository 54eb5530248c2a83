"""Background turns while their server is stopped or killed, and started again (D-40)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import httpx

from tests.adapters.openai.wire import read_stream
from tests.app.http.test_background import begun, ended, read
from tests.app.scripts import HELLO, SCRIPT, STOP, entry
from tests.faults.witness import (
    acknowledged,
    check_whole,
    events,
    kill,
    listening,
    names,
    replay,
    scripted,
    stories,
)
from tests.waiting import until
from turnlog.domain.events import TurnFailed

ONE_AT_A_TIME = SCRIPT | {"concurrency": 1}


def test_a_queued_turn_survives_a_kill_and_is_run_by_the_next_server(tmp_path: Path) -> None:
    """D-40: the same id and input, and an event says so; what had begun fails by the restart."""
    with scripted(tmp_path, ONE_AT_A_TIME) as server, server.http as http:
        running = begun(http, "hang")
        until(lambda: read(http, running["id"])["output"])
        queued = begun(http, "hi", metadata={"team": "a"})
        acknowledged(http, running["id"], "generation_started")
        kill(server)

    with scripted(tmp_path, ONE_AT_A_TIME) as server, server.http as http:
        done, lost = ended(http, queued["id"]), ended(http, running["id"])
        stored = acknowledged(http, queued["id"], "persisted")
        told = read_stream(replay(http, queued["id"]))

    assert (done["id"], done["status"], done["output_text"]) == (queued["id"], "completed", "Hello")
    assert (done["metadata"], done["created_at"]) == (queued["metadata"], queued["created_at"])
    assert (lost["status"], lost["error"]["code"]) == ("failed", "server_restart")
    assert names(stored)[:3] == ["created", "requeued", "generation_started"]
    assert [event["type"] for event in told][1:3] == ["response.queued", "response.in_progress"]


def test_sigterm_leaves_queued_turns_queued(tmp_path: Path) -> None:
    """D-40: the one that waits for its lane next, too; its followers are let go without an end."""
    with (
        scripted(tmp_path, ONE_AT_A_TIME, TURNLOG_SHUTDOWN_GRACE_S="1") as server,
        server.http as http,
        listening(http, "hang") as live,
    ):
        live.until("output_text.delta")
        queued = [begun(http, "hi")["id"] for _ in range(3)]
        with http.stream("GET", f"/v1/responses/{queued[0]}?stream=true") as follower:
            chunks = follower.iter_bytes()
            heard = next(chunks)
            assert server.stop() == 0
            heard += b"".join(chunks)
    kept = stories(tmp_path / "turnlog.db")
    with scripted(tmp_path, ONE_AT_A_TIME) as server, server.http as http:
        answers = [ended(http, response_id)["output_text"] for response_id in queued]
        rest = http.get(f"/v1/responses/{queued[0]}?stream=true&starting_after=1").content
        whole = replay(http, queued[0])

    assert [len(kept[response_id]) for response_id in queued] == [1, 1, 1]
    assert answers == ["Hello"] * 3
    assert whole == heard + rest


def test_queued_turns_keep_their_place_behind_live_ones(tmp_path: Path) -> None:
    """D-40."""
    with (
        scripted(tmp_path, ONE_AT_A_TIME) as server,
        server.http as http,
        listening(http, "hang") as running,
    ):
        running.until("output_text.delta")
        queued = begun(http, "hi")
        with ThreadPoolExecutor() as clients:
            live = clients.submit(http.post, "/v1/responses", json={"model": "scripted", "input": "hi"})
            until(lambda: _queued_live(server.http))
            running.hang_up()
            first = live.result().json()
        done = ended(http, queued["id"])
        started = [acknowledged(http, each["id"], "generation_started")[1]["time"] for each in (first, done)]

    assert started == sorted(started)


def _queued_live(http: httpx.Client) -> bool:
    with http:
        return 'turnlog_queue_depth{model="scripted"} 1.0' in http.get("/metrics").text


# ── at random ─────────────────────────────────────────────────────────────────────────────────────

SERVERS = 8
TURNS = 10

BUSY = {
    "concurrency": 2,
    "turns": [
        entry(
            "talk", *[{"text": f"{number} "} if number % 2 else {"sleep_ms": 5} for number in range(30)], STOP
        ),
        HELLO,
    ],
}


def test_in_a_loop_of_kills_no_background_turn_is_lost_or_ends_twice(tmp_path: Path) -> None:
    """D-40: a follower that comes back with its last number is told one story without a gap."""
    chance = Random(7)
    accepted: dict[str, bytes] = {}
    for _ in range(SERVERS):
        with scripted(tmp_path, BUSY) as server, server.http as http:
            for _ in range(TURNS):
                accepted[begun(http, chance.choice(["hi", "talk"]))["id"]] = b""
            with ThreadPoolExecutor(4) as followers:
                followed = chance.sample(sorted(accepted), min(4, len(accepted)))
                heard = [
                    followers.submit(_follow, server.http, response_id, accepted[response_id])
                    for response_id in followed
                ]
                until(lambda: _some_ended(http, list(accepted)[-TURNS:], chance.randint(1, TURNS // 2)))
                kill(server)
                for response_id, following in zip(followed, heard, strict=True):
                    accepted[response_id] = following.result()

    with scripted(tmp_path, BUSY) as server, server.http as http:
        for response_id, told in accepted.items():
            ended(http, response_id)
            whole = replay(http, response_id)
            read_stream(whole)
            assert _frames(whole)[: len(_frames(told))] == _frames(told) or _lost(http, response_id)
        assert server.stop() == 0
    kept = stories(tmp_path / "turnlog.db")
    assert accepted.keys() == kept.keys()
    for story in kept.values():
        check_whole(story)
        ending = [each.event for each in story if isinstance(each.event, TurnFailed)]
        assert all(event.reason == "server_restart" for event in ending)


def _some_ended(http: httpx.Client, response_ids: list[str], count: int) -> bool:
    done = sum(read(http, each)["status"] not in ("queued", "in_progress") for each in response_ids)
    return done >= count


def _follow(http: httpx.Client, response_id: str, told: bytes) -> bytes:
    """What a follower has heard who goes on after its last whole frame, until the server is gone."""
    last = len(_frames(told)) - 1
    told = b"".join(frame + b"\n\n" for frame in _frames(told))
    if told.endswith(b"[DONE]\n\n"):
        return told
    try:
        with (
            http,
            http.stream("GET", f"/v1/responses/{response_id}?stream=true&starting_after={last}") as answer,
        ):
            for chunk in answer.iter_bytes():
                told += chunk
    except httpx.TransportError:
        pass
    return told


def _frames(told: bytes) -> list[bytes]:
    return told.split(b"\n\n")[:-1]


def _lost(http: httpx.Client, response_id: str) -> bool:
    """Whether the turn had begun when its server died: it was told what was not stored yet (D-22)."""
    return names(events(http, response_id))[-1] == "failed"

"""A store that is locked, refuses, or is swapped under a server: turns go on, and nothing lies afterwards."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.adapters.eventstore.faults import (
    CORRUPT,
    FULL,
    IO_ERROR,
    LOCKED,
    READ_ONLY,
    Fault,
    FaultyStore,
    after_commit,
    before,
    opened_faulty,
)
from tests.adapters.eventstore.locker import locked_by_another_process
from tests.adapters.eventstore.stories import execute
from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create, refused, stream
from tests.app.scripts import SCRIPT
from tests.app.services import asked, running
from tests.faults.witness import (
    Json,
    acknowledged,
    check_whole,
    continued,
    error_code,
    last_frame,
    listening,
    names,
    replay,
    scripted,
    stories,
)
from tests.serving import LONG_S, turnlog
from tests.waiting import until
from turnlog.app.http.service import Service
from turnlog.domain.errors import ResponseNotFoundError
from turnlog.domain.events import Recorded, ResponseEvent, TurnCommitted, TurnFailed

ONE_AT_A_TIME = SCRIPT | {"concurrency": 1}
SHORT_WAITS = {"MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS": "100", "MLX_POST_COMMIT_PERSIST_TIMEOUT_MS": "100"}


# ── locked ────────────────────────────────────────────────────────────────────────────────────────


def test_while_the_file_is_locked_turns_go_on_and_all_of_them_land_when_it_is_free(tmp_path: Path) -> None:
    """R-083, R-351, R-354, R-355, R-364, G-043, G-046, G-064: the loop does not wait for the store."""
    with scripted(tmp_path, SCRIPT, **SHORT_WAITS) as server, server.http as http:
        first = create(http, "hi")["id"]
        acknowledged(http, first, "persisted")

        with locked_by_another_process(server.database):
            live = [stream(http, text) for text in ("long", "think", "boom", "cut")]
            told = [read_stream(each) for each in live]
            ids = [frames[0]["response"]["id"] for frames in told]
            answers = [http.get(f"/v1/responses/{response_id}").json() for response_id in ids]
            again = [replay(http, response_id) for response_id in ids]
            kept = stories(server.database)
            wedged = error_code(continued(http, ids[1]))
            from_the_store = continued(http, first).status_code
        for response_id, last in zip(ids, ("persisted", "persisted", "failed", "persisted"), strict=True):
            acknowledged(http, response_id, last)

        assert kept.keys() == {first}
        assert again == live
        # Only an object says when it expires: frames read the same at any time (D-37).
        for answer in answers:
            del answer["expires_at"]
        assert answers == [frames[-1]["response"] for frames in told]
        assert (wedged, from_the_store) == ((503, "storage_timeout"), 200)
        assert continued(http, ids[1]).status_code == 200
        assert [replay(http, response_id) for response_id in ids] == live
        assert server.stop() == 0
    for story in stories(tmp_path / "turnlog.db").values():
        check_whole(story)


def test_a_running_stream_keeps_its_pace_while_the_file_is_locked(tmp_path: Path) -> None:
    """Other requests are answered between any two of its frames."""
    with (
        scripted(tmp_path, SCRIPT) as server,
        server.http as http,
        locked_by_another_process(server.database),
        listening(http, "slow") as slow,
    ):
        slow.until('"delta":"Hel"')
        quick = [create(http, "hi")["status"] for _ in range(3)]
        ended = slow.ended
        alive = http.get("/health").status_code
        slow.until("[DONE]")

    assert (quick, ended, alive) == (["completed"] * 3, False, 200)
    assert read_stream(slow.told)[-1]["response"]["output_text"] == "Hello"


def test_a_write_past_its_hard_limit_is_uncertain_until_it_lands(tmp_path: Path) -> None:
    """G-050, R-121, R-356, R-360: 503 for its readers and continuations, 200 once it has landed."""
    environ = SHORT_WAITS | {"MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS": "50"}
    with scripted(tmp_path, SCRIPT, **environ) as server, server.http as http:
        with locked_by_another_process(server.database):
            body = create(http, "hi")
            address = f"/v1/responses/{body['id']}"
            uncertain = until(lambda: _if_refused(http.get(address)))
            wedged = error_code(continued(http, body["id"]))
        until(lambda: continued(http, body["id"]).status_code == 200)
        stored = acknowledged(http, body["id"], "persisted")

        assert uncertain == wedged == (503, "storage_timeout")
        assert names(stored)[-3:] == ["committed", "persist_hard_timed_out", "persisted"]
        # The continuation has moved the expiry of the conversation (D-37).
        assert {**http.get(address).json(), "expires_at": body["expires_at"]} == body


def _if_refused(answer: httpx.Response) -> tuple[int, str] | None:
    return None if answer.is_success else error_code(answer)


def test_when_too_much_waits_for_the_store_new_turns_are_refused_and_running_ones_go_on(
    tmp_path: Path,
) -> None:
    """The queue is bounded in bytes; what is queued is never dropped."""
    with scripted(tmp_path, SCRIPT, TURNLOG_MAX_QUEUED_BYTES="1") as server, server.http as http:
        with locked_by_another_process(server.database), listening(http, "slow") as slow:
            slow.until("response.in_progress")
            refusals = [error_code(http.post("/v1/responses", json=_asking("hi"))) for _ in range(2)]
            ready = http.get("/health/ready")
            unstored = create(http, "hi", store=False)["status"]
            slow.until("[DONE]")
        stored = acknowledged(http, slow.response_id, "persisted")
        until(lambda: http.post("/v1/responses", json=_asking("hi")).status_code == 200)

        assert refusals == [(503, "storage_unavailable")] * 2
        assert (ready.status_code, "the store is overloaded" in ready.text) == (503, True)
        assert (unstored, names(stored)[-2:]) == ("completed", ["committed", "persisted"])
        assert replay(http, slow.response_id) == slow.told


def _asking(text: str) -> Json:
    return {"model": "scripted", "input": text}


def test_a_server_that_is_stopped_while_the_file_is_locked_still_writes_what_is_queued(
    tmp_path: Path,
) -> None:
    """R-393: running turns end as `shutting_down`, and the exit code is 0."""
    with scripted(tmp_path, SCRIPT, TURNLOG_SHUTDOWN_GRACE_S="0.1") as server, server.http as http:
        with locked_by_another_process(server.database):
            done = create(http, "hi")["id"]
            with listening(http, "hang") as hanging:
                hanging.until("output_text.delta")
                server.process.terminate()
                hanging.until("[DONE]")
        code = server.process.wait(LONG_S)
    kept = stories(tmp_path / "turnlog.db")

    assert code == 0
    assert last_frame(hanging.told)["response"]["incomplete_details"] == {"reason": "shutting_down"}
    assert kept.keys() == {done, hanging.response_id}
    for story in kept.values():
        check_whole(story)


def test_a_write_that_takes_too_long_makes_the_server_not_ready_until_it_has_landed(tmp_path: Path) -> None:
    """`/health/ready` tells the reason; `/health` only says that the process is alive."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        before_it = http.get("/health/ready")
        with locked_by_another_process(server.database):
            create(http, "hi")
            problem = until(lambda: _if_not_ready(http))
            alive = http.get("/health")
        until(lambda: not _if_not_ready(http))

    assert (before_it.status_code, before_it.json()) == (200, {"status": "ok", "problems": []})
    assert problem.startswith("the store has not taken a write for ")
    assert alive.status_code == 200


def _if_not_ready(http: httpx.Client) -> str:
    """Why the server is not ready; "" if it is."""
    answer = http.get("/health/ready")
    assert answer.status_code in (200, 503)
    return "; ".join(answer.json()["problems"])


# ── the file itself ───────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_deleted_or_replaced_under_a_server_is_noticed(tmp_path: Path) -> None:
    """It goes on taking writes that nobody will read, so the server says that it is not ready."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        acknowledged(http, create(http, "hi")["id"], "persisted")
        ready = _if_not_ready(http)
        copy = shutil.copy(server.database, tmp_path / "copy.db")
        server.database.unlink()
        deleted = _if_not_ready(http)
        shutil.move(copy, server.database)
        replaced = _if_not_ready(http)
        alive = http.get("/health").status_code

    assert (ready, alive) == ("", 200)
    assert "the store's file was deleted or replaced" in deleted
    assert "the store's file was deleted or replaced" in replaced


class Damage(NamedTuple):
    """Bytes that are overwritten, and a word of what the server then says."""

    offset: int
    length: int
    said: str


HEADER = Damage(0, 100, "not a database")
PAGES = Damage(4096, 3 * 4096, "damaged")


@pytest.mark.parametrize("damage", [HEADER, PAGES], ids=["header", "pages"])
def test_a_damaged_file_is_refused_at_the_start_in_one_line(tmp_path: Path, damage: Damage) -> None:
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        for _ in range(3):
            create(http, "long")
        server.stop()
    with server.database.open("r+b") as file:
        file.seek(damage.offset)
        file.write(b"\xff" * damage.length)

    script = tmp_path / "script.json"
    serve = ("serve", "--port", "0", "--engine", "scripted", "--script", str(script))
    done = turnlog(*serve, "--db", str(server.database))

    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("20")]
    assert str(server.database) in line
    assert damage.said in line


def test_an_event_that_cannot_be_read_is_named_and_the_others_are_served(tmp_path: Path) -> None:
    """R-123, G-062: bit rot inside a row, which SQLite itself does not see."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        good, bad = (create(http, "hi")["id"] for _ in range(2))
        server.stop()
    execute(server.database, "UPDATE stored_events SET state = x'7b' WHERE originator_id = ?", bad)

    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        error = refused(http.get(f"/v1/responses/{bad}"), 500)
        chain = refused(continued(http, bad), 500)
        well = [continued(http, good).status_code, http.get(f"/v1/responses/{good}").status_code]

    assert error["code"] == "storage_error"
    assert f"Event 1 of response '{bad}'" in error["message"]
    assert "Retrieving the previous response" in chain["message"]
    assert well == [200, 200]


def test_pages_that_rot_under_a_server_are_an_error_for_who_reads_them_and_it_lives_on(
    tmp_path: Path,
) -> None:
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        rotten = create(http, "long")["id"]
        server.stop()
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        with server.database.open("r+b") as file:
            size = file.seek(0, 2)
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        answer = http.get(f"/v1/responses/{rotten}")
        ready = _if_not_ready(http)
        unstored = create(http, "hi", store=False)["status"]
        alive = http.get("/health").status_code

    assert error_code(answer) == (500, "storage_error")
    assert "malformed" in ready
    assert (unstored, alive) == ("completed", 200)


def test_a_second_server_on_the_file_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    """One server per file: the second would take the first one's running turns for lost."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http, listening(http, "hang") as hanging:
        hanging.until("output_text.delta")
        acknowledged(http, hanging.response_id, "item_extended")
        script = tmp_path / "script.json"
        serve = ("serve", "--port", "0", "--engine", "scripted", "--script", str(script))
        second = turnlog(*serve, "--db", str(server.database))
        status = http.get(f"/v1/responses/{hanging.response_id}").json()["status"]

    assert (second.returncode, status) == (2, "in_progress")
    assert f"in use by process {server.process.pid}, which listens on {server.address}" in second.stderr


# ── a store that fails, plugged in behind a whole service ─────────────────────────────────────────


@asynccontextmanager
async def with_faulty_store(folder: Path) -> AsyncIterator[tuple[Service, FaultyStore]]:
    """A service that runs one turn at a time and whose writes meet the store's faults."""
    with opened_faulty(folder / "turnlog.db") as store:
        async with running(folder, ONE_AT_A_TIME, wrap=lambda _: store.journal) as service:
            yield service, store


@pytest.mark.parametrize("error", [FULL, READ_ONLY, CORRUPT], ids=["full", "read_only", "corrupt"])
async def test_a_store_that_refuses_costs_the_turn_its_log_and_nothing_else(
    tmp_path: Path, error: sqlite3.Error
) -> None:
    """D-22, R-361, G-074, G-075, G-077: the answer stands, and later the turn is not found."""
    async with with_faulty_store(tmp_path) as (service, store):
        store.recorder.faults.extend([before(error)] * 10)
        lost = await service.turns.begin(asked("hi"))
        await lost.settled.wait()
        with pytest.raises(ResponseNotFoundError):
            await service.retrieval.response(lost.response.id)
        store.recorder.faults.clear()
        kept = await service.turns.begin(asked("hi"))
        await kept.settled.wait()

    assert isinstance(lost.response.ended, TurnCommitted)
    assert stories(tmp_path / "turnlog.db").keys() == {kept.response.id}


@pytest.mark.parametrize(
    "faults",
    [
        [before(LOCKED)] * 3,
        [before(IO_ERROR)] * 3,
        [after_commit(IO_ERROR)],
        [after_commit(LOCKED), before(IO_ERROR)],
    ],
    ids=["locked", "I/O error", "reported as failed but landed", "landed and then failed again"],
)
async def test_what_gives_no_clear_answer_is_tried_until_it_is_in_the_log_once(
    tmp_path: Path, faults: list[Fault]
) -> None:
    """Commit unknown: the versions are read back, so no event is lost and none is stored twice."""
    async with with_faulty_store(tmp_path) as (service, store):
        store.recorder.faults.extend(faults)
        turn = await service.turns.begin(asked("hi"))
        await turn.settled.wait()
        read_again = (await service.retrieval.response(turn.response.id)).response

    (story,) = stories(tmp_path / "turnlog.db").values()
    check_whole(story)
    assert read_again.items == turn.response.items
    assert _count(story, TurnCommitted) == 1


async def test_a_turn_whose_end_is_refused_is_failed_by_the_next_server(tmp_path: Path) -> None:
    """D-22: the disk was full when the answer was to be stored. A half story is never taken for an answer."""
    async with with_faulty_store(tmp_path) as (service, store):
        first = await service.turns.begin(asked("hang"))
        turn = await service.turns.begin(asked("hi"))
        # Behind everything that was handed over so far.
        await asyncio.wrap_future(store.journal.expire(0))
        store.recorder.faults.extend([before(FULL)] * 10)
        first.abort("client_abort")
        await turn.settled.wait()
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        told = replay(http, turn.response.id)
        next_turn = error_code(continued(http, turn.response.id))

    assert isinstance(turn.response.ended, TurnCommitted)
    assert last_frame(told)["response"]["incomplete_details"] == {"reason": "server_restart"}
    assert next_turn == (400, "previous_response_not_completed")
    for story in stories(tmp_path / "turnlog.db").values():
        check_whole(story)
        assert _count(story, TurnFailed) == 1


def _count(story: list[Recorded], kind: type[ResponseEvent]) -> int:
    return sum(isinstance(recorded.event, kind) for recorded in story)

"""A disk that is really full, and one that really fails: on Linux, where mounts are allowed."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.app.http.test_turns import create, stream
from tests.app.scripts import SCRIPT
from tests.faults.conftest import mounted
from tests.faults.witness import (
    acknowledged,
    check_whole,
    continued,
    last_frame,
    replay,
    scripted,
    stories,
)
from tests.serving import RunningServer
from tests.waiting import until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """One megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    with mounted(folder, "1m"):
        yield folder


def test_on_a_full_disk_answers_stand_unstored_and_with_room_again_turns_are_stored(small_disk: Path) -> None:
    """D-22, R-361, G-074, G-075: nothing is stored in part, and what was stored before is still there."""
    with scripted(small_disk, SCRIPT) as server, server.http as http:
        before = create(http, "hi")["id"]
        acknowledged(http, before, "persisted")
        ballast = _fill(small_disk)

        told = [stream(http, text) for text in ("long", "think")]
        lost = [last_frame(each)["response"] for each in told]
        addresses = [f"/v1/responses/{response['id']}" for response in lost]
        until(lambda: [http.get(address).status_code for address in addresses] == [404, 404])
        continuations = [continued(http, response["id"]).status_code for response in lost]
        readable = http.get(f"/v1/responses/{before}").status_code

        ballast.unlink()
        after = stream(http, "think")
        stored = acknowledged(http, last_frame(after)["response"]["id"], "persisted")

        assert [response["status"] for response in lost] == ["completed", "completed"]
        assert (continuations, readable) == ([404, 404], 200)
        assert replay(http, last_frame(after)["response"]["id"]) == after
        assert [event["version"] for event in stored] == list(range(1, len(stored) + 1))
        assert server.stop() == 0
    for story in stories(small_disk / "turnlog.db").values():
        check_whole(story)


def _fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            return ballast
    return ballast


def test_writes_that_fail_are_tried_until_the_disk_takes_them(tmp_path: Path) -> None:
    """An I/O error is no refusal: the write has not settled, and lands late (R-354)."""
    with scripted(tmp_path, SCRIPT) as server, server.http as http:
        acknowledged(http, create(http, "hi")["id"], "persisted")
        with _failing_writes(server):
            live = stream(http, "think")
            response_id = last_frame(live)["response"]["id"]
            kept = stories(server.database)
            alive = http.get("/health").status_code
        acknowledged(http, response_id, "persisted")

        assert (response_id in kept, alive) == (False, 200)
        assert replay(http, response_id) == live
        assert continued(http, response_id).status_code == 200


@contextmanager
def _failing_writes(server: RunningServer) -> Iterator[None]:
    """The kernel fails every write of the server's behind the present end of its write-ahead log."""
    size = server.database.with_name("turnlog.db-wal").stat().st_size
    hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))

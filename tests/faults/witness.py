"""A scripted server to be hurt, and what a client and the store say of its turns."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.app.scripts import write_script
from tests.listed import listed
from tests.serving import LONG_S, RunningServer, serving
from tests.waiting import received, until
from turnlog.adapters.eventstore.store import open_reader
from turnlog.domain.events import Recorded, TurnCommitted, TurnFailed
from turnlog.domain.lifecycle import Status
from turnlog.domain.response import fold_stored

Json = dict[str, Any]


@contextmanager
def scripted(folder: Path, script: Json, **environ: str) -> Iterator[RunningServer]:
    """A server that plays the script, with its log in `folder`; another one goes on with that log."""
    arguments = ("--engine", "scripted", "--script", str(write_script(folder, script)))
    with serving(folder / "turnlog.db", *arguments, **environ) as server:
        yield server


def kill(server: RunningServer) -> None:
    """SIGKILL, and wait until the process is gone."""
    server.process.kill()
    server.process.wait(LONG_S)


# ── what a client sees ────────────────────────────────────────────────────────────────────────────


class Listener:
    """Reads a stream piece by piece; `told` is what has come so far."""

    def __init__(self, answer: httpx.Response) -> None:
        self.told = b""
        self.hang_up = answer.close
        self._chunks = answer.iter_bytes()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.told += chunk
            yield chunk

    def until(self, text: str) -> None:
        """Read on until the text was told."""
        if text.encode() not in self.told:
            self.told += received(lambda: next(self._chunks, b""), text.encode())

    @property
    def response_id(self) -> str:
        """The id in the first frame; "" if that has not come yet."""
        found = re.search(rb'"id":"(resp_[0-9a-f]{32})"', self.told)
        return found[1].decode() if found else ""

    @property
    def ended(self) -> bool:
        """Whether the terminal frame has come, whole."""
        return bool(re.search(rb"event: response\.(completed|incomplete|failed)\n.*\n\n", self.told))


@contextmanager
def listening(http: httpx.Client, text: str, **fields: Any) -> Iterator[Listener]:
    """The stream of a new turn."""
    body = {"model": "scripted", "input": text, "stream": True} | fields
    with http.stream("POST", "/v1/responses", json=body) as answer:
        yield Listener(answer)


def events(http: httpx.Client, response_id: str) -> list[Json]:
    """The stored events of a response; none if it is not found."""
    answer = http.get(f"/v1/responses/{response_id}/events")
    found: list[Json] = answer.json()["data"] if answer.status_code == 200 else []
    return found


def acknowledged(http: httpx.Client, response_id: str, last: str) -> list[Json]:
    """The stored events of a response, as soon as one of that name is among them."""
    return until(lambda: _only_with(last, events(http, response_id)))


def _only_with(last: str, stored: list[Json]) -> list[Json]:
    return stored if last in names(stored) else []


def names(stored: list[Json]) -> list[str]:
    """What happened, without what was said."""
    return [event["event"].removeprefix("response.").removesuffix(".v1") for event in stored]


def replay(http: httpx.Client, response_id: str) -> bytes:
    """The stream of a response read again, and once more to see that it stays the same."""
    address = f"/v1/responses/{response_id}?stream=true"
    told = http.get(address).content
    assert http.get(address).content == told
    return told


def continued(http: httpx.Client, response_id: str) -> httpx.Response:
    """The answer to a turn that continues a response."""
    body = {"model": "scripted", "input": "hi", "previous_response_id": response_id}
    return http.post("/v1/responses", json=body)


def error_code(answer: httpx.Response) -> tuple[int, str]:
    """How a request was refused."""
    return answer.status_code, answer.json()["error"]["code"]


def last_frame(told: bytes) -> Json:
    """The data of a stream's terminal frame."""
    frame: Json = json.loads(told.rstrip().split(b"\n\n")[-2].split(b"data: ")[1])
    return frame


# ── what the store says ───────────────────────────────────────────────────────────────────────────


def stories(database: Path) -> dict[str, list[Recorded]]:
    """The events of every response in the store, by its id."""
    with closing(open_reader(database)) as reader:
        return {row.response_id: reader.events(row.response_id).result() for row in listed(reader)}


def check_whole(story: list[Recorded]) -> None:
    """A story has no gap and exactly one end, leads to one final state, and leaves no item open."""
    assert [recorded.version for recorded in story] == list(range(1, len(story) + 1))
    happened = [recorded.event for recorded in story]
    assert sum(isinstance(event, TurnCommitted | TurnFailed) for event in happened) == 1
    response = fold_stored(happened)
    assert response.status in (Status.PERSISTED, Status.FAILED)
    assert not response.output.open_entries

"""A running service every handle of whose engines is counted, asked directly or over HTTP."""

import json
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from litestar.exceptions import LitestarDeprecationWarning

from tests.adapters.openai.wire import read_stream
from tests.app.scripts import ADD_1, HELLO, STOP, Json, calling, entry
from tests.app.services import WrapJournal, asked, shut_down
from tests.fakes.engine import CountedEngine
from turnlog.adapters.scripted.script import parse_script
from turnlog.app.http.application import make_application
from turnlog.app.http.service import Service
from turnlog.app.server import bootstrap
from turnlog.app.settings import IN_MEMORY, Settings
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.owners import LOCAL_OWNER

SCRIPT: Json = {
    "context_window": 400,
    "turns": [
        calling("add", ADD_1, text=""),
        entry("hang", {"text": "Hel"}, {"hang": True}),
        entry("wait", {"hang": True}),
        entry("boom", {"text": "Hel"}, {"raise": "it broke"}),
        entry("exhaust", {"text": "Hel"}),
        entry("refuse", {"text": "Hel"}, {"end": {"finish_reason": "error"}}),
        entry("cut", {"text": "Hel"}, {"end": {"finish_reason": "length"}}),
        entry("tell", *[{"text": f"word{number} "} for number in range(30)], STOP),
        HELLO,
    ],
}
ONE_BY_ONE: Json = SCRIPT | {"concurrency": 1}
ADD_TOOL: Json = {"type": "function", "name": "add", "parameters": {"type": "object"}}

ANSWER_TOKENS = 1
"""What "Hello" adds to the tokens that a turn has read."""


def words(count: int, about: str = "a") -> str:
    """A text of so many words, each a token; texts about different things share none."""
    return " ".join(f"{about}{number}" for number in range(count))


def prompt_tokens(*texts: str) -> int:
    """How long the prompt of a conversation is: each message has a marker, and so has the answer to come."""
    return sum(1 + len(text.split()) for text in texts) + 1


KEY = "a-key-of-mine"
HUNDRED = words(100)
READ = prompt_tokens(HUNDRED) + ANSWER_TOKENS
"""What a turn that was asked a hundred words leaves."""

both_ways = pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])


class CountedSource:
    """A model that was declared; its engines, one for each load, count their handles."""

    def __init__(self, script: Json) -> None:
        self._script = parse_script(json.dumps(script))
        self.engines: list[CountedEngine] = []
        self.defaults = ModelDefaults()

    @property
    def weight_bytes(self) -> int:
        """What the script reservations."""
        return self._script.weight_bytes

    def load(self) -> CountedEngine:
        """A new engine."""
        self.engines.append(CountedEngine(self._script))
        return self.engines[-1]

    @property
    def handle_bytes(self) -> list[int]:
        """The sizes of the handles that were not dropped."""
        return [engine.size_bytes(handle) for engine in self.engines for handle in engine.kept]


class Told(NamedTuple):
    """What an answer says of the caches: its two headers, and the count in its usage."""

    cache: str | None
    counted: str | None
    cached_tokens: int | None


class Answer(NamedTuple):
    """An answer over HTTP; `body` is the response object, or the error."""

    status: int
    told: Told
    body: Json

    @property
    def id(self) -> str:
        """The id of the response."""
        return str(self.body["id"])


class Running:
    """The service, and how it is asked."""

    def __init__(self, service: Service, source: CountedSource, http: httpx.AsyncClient) -> None:
        self.service = service
        self.source = source
        self.http = http

    async def begin(
        self, text: str, previous: str | None = None, *, owner: str = LOCAL_OWNER, **fields: Any
    ) -> LiveTurn:
        """A turn that runs."""
        return await self.service.turns.begin(asked(text, previous_response_id=previous, **fields), owner)

    async def turn(self, text: str, previous: str | None = None, **fields: Any) -> LiveTurn:
        """A turn that has ended and whose last write has settled, if it is stored."""
        turn = await self.begin(text, previous, **fields)
        await (turn.settled if turn.response.created.store else turn.ended).wait()
        return turn

    async def post(self, said: str | Sequence[Json], previous: str | None = None, **fields: Any) -> Answer:
        """A turn over HTTP, as JSON or as a stream; `fields` are those of its body."""
        body = {"model": "scripted", "input": said, "previous_response_id": previous} | fields
        answer = await self.http.post("/v1/responses", json=body)
        streamed = answer.headers["content-type"].startswith("text/event-stream")
        told: Json = read_stream(answer.content)[-1]["response"] if streamed else answer.json()
        usage = told.get("usage")
        cached_tokens = usage["input_tokens_details"]["cached_tokens"] if usage else None
        headers = answer.headers
        return Answer(
            answer.status_code,
            Told(headers.get("x-session-cache"), headers.get("x-cached-tokens"), cached_tokens),
            told,
        )

    def warm(self, what: str) -> int:
        """A gauge of the warm caches: "entries" or "bytes"."""
        lines = self.service.metrics.exposition("")[0].decode().splitlines()
        return next(
            round(float(line.split()[1])) for line in lines if line.startswith(f"turnlog_warm_{what} ")
        )

    def accounts(self) -> None:
        """Every handle that was ever made is in the pool or was dropped, and the memory knows of them."""
        sizes = self.source.handle_bytes
        told = (self.warm("entries"), self.warm("bytes"), self.service.models.memory.used["warm"])
        assert told == (len(sizes), sum(sizes), sum(sizes))


@asynccontextmanager
async def running(
    script: Json = SCRIPT,
    wrap: WrapJournal = lambda journal: journal,
    names: Sequence[str] = ("scripted",),
    **settings: Any,
) -> AsyncIterator[Running]:
    """A service with its log in memory; when it has ended, no handle must be lost.

    Args:
        wrap: comes between the service and its journal.
        names: what the one model is called.
    """
    source = CountedSource(script)
    chosen = Settings(**{"db": Path(IN_MEMORY)} | settings)
    with ExitStack() as resources:
        service = bootstrap.assemble(chosen, dict.fromkeys(names, source), resources, wrap_journal=wrap)
        async with _client(service, chosen) as http:
            running = Running(service, source, http)
            yield running
        await shut_down(service)
    # Here, because only an engine that is closed makes no more handles.
    running.accounts()


def _client(service: Service, settings: Settings) -> httpx.AsyncClient:
    with warnings.catch_warnings():
        # How routes name what they depend on is no matter of these tests.
        warnings.simplefilter("ignore", LitestarDeprecationWarning)
        application: Any = make_application(service, settings)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=application), base_url="http://127.0.0.1")


async def first_delta(turn: LiveTurn) -> None:
    """Wait until the engine has said something."""
    async for frames in turn.frames.read():
        if b"output_text.delta" in b"".join(frames):
            return


def cached_tokens(turn: LiveTurn) -> int | None:
    """What a warm cache has spared a turn that has ended."""
    ended = turn.response.ended
    assert ended
    return ended.usage.cached_tokens

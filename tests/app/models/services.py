"""A service of several scripted models over real SQLite, whose loads and look-ups can be held up."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from tests.app.scripts import Json, entry, write_script
from tests.app.services import WrapJournal, shut_down
from tests.waiting import SOON_S
from turnlog.adapters.scripted.source import ScriptedSource
from turnlog.app.http.service import Service
from turnlog.app.models.lane import LaneCounts
from turnlog.app.server import bootstrap
from turnlog.app.settings import Settings
from turnlog.domain.events import Recorded
from turnlog.domain.messages import Message
from turnlog.domain.ports import EventReader, InferenceEngine
from turnlog.domain.request import TurnRequest

Groups = list[list[Recorded]]
"""The events of a chain, response by response."""

NOTHING = LaneCounts(active=0, queued=0, reservations=0)

Result = TypeVar("Result")


def saying(answer: str, **keys: Any) -> Json:
    """A model that answers so, one turn at a time, unless it is told to hang."""
    end = {"end": {"finish_reason": "stop"}}
    turns = [entry("hang", {"text": "Hel"}, {"hang": True}), {"steps": [{"text": answer}, end]}]
    return {"concurrency": 1, "turns": turns} | keys


class HeldSource:
    """A script whose load goes on when the test says so; `loads` counts them."""

    def __init__(self, source: ScriptedSource) -> None:
        self._source = source
        self._may_go_on = Event()
        self.weight_bytes = source.weight_bytes
        self.defaults = source.defaults
        self.loads = 0

    def load(self) -> InferenceEngine:
        """Load the script, later."""
        self.loads += 1
        assert self._may_go_on.wait(SOON_S), "the test forgot this load"
        return self._source.load()

    def go_on(self) -> None:
        """Let it be loaded."""
        self._may_go_on.set()


class HeldReader:
    """The reader of a service, whose look-ups of chains go on, or fail, when the test says so."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader
        self._held: list[tuple[partial[Future[Groups]], Future[Groups]]] = []
        self._news = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        """All other look-ups, as they are."""
        return getattr(self._reader, name)

    def chain(self, response_id: str, **asked: Any) -> Future[Groups]:
        """Hold the look-up back."""
        answer: Future[Groups] = Future()
        self._held.append((partial(self._reader.chain, response_id, **asked), answer))
        self._news.set()
        return answer

    async def until_asked(self) -> None:
        """Wait for a look-up."""
        await self._news.wait()
        self._news.clear()

    def go_on(self, error: Exception | None = None) -> None:
        """Answer what is held back."""
        for look_up, answer in self._held:
            if error:
                answer.set_exception(error)
            elif answer.set_running_or_notify_cancel():
                answer.set_result(look_up().result(SOON_S))
        self._held.clear()


def hold_look_ups(service: Service) -> HeldReader:
    """From now on, the chains of this service are looked up when the test says so."""
    retrieval: Any = service.retrieval
    held = HeldReader(retrieval._log)
    retrieval._log = held
    return held


@asynccontextmanager
async def serving(
    folder: Path,
    models: Mapping[str, Json | str],
    wrap: WrapJournal = lambda journal: journal,
    held: Mapping[str, type[HeldSource]] | None = None,
    **settings: Any,
) -> AsyncIterator[Service]:
    """A service of models by name: a script each, or the name of a model that is meant.

    Args:
        held: names whose loads the test lets go on, by `held_sources`.
    """
    sources: dict[str, Any] = {}
    for name, meant in models.items():
        if isinstance(meant, str):
            sources[name] = sources[meant]
        else:
            (folder / name).mkdir(exist_ok=True)
            sources[name] = ScriptedSource(write_script(folder / name, meant))
    for name, kind in (held or {}).items():
        sources[name] = kind(sources[name])
    with ExitStack() as resources:
        chosen = Settings(**{"db": folder / "turnlog.db"} | settings)
        service = bootstrap.assemble(chosen, sources, resources, wrap_journal=wrap)
        yield service
        await shut_down(service)


def source_of(service: Service, name: str) -> HeldSource:
    """The held source that a name was declared with."""
    source = service.models._declared[name]
    assert isinstance(source, HeldSource)
    return source


def asked(model: str, text: str = "hi", **fields: Any) -> TurnRequest:
    """A request for a turn of a model."""
    return TurnRequest(model=model, input=(Message("user", text),), **fields)


async def begun(*work: Coroutine[Any, Any, Result]) -> "list[asyncio.Task[Result]]":
    """These at once, each as far as it goes before it waits for the first time."""
    tasks = [asyncio.create_task(each) for each in work]
    await asyncio.sleep(0)
    return tasks


def counts(service: Service, name: str) -> LaneCounts:
    """What the budget of a loaded model is stats on."""
    binding = service.models.registry.find(name)
    assert binding
    return binding.lane.counts


def held_by_requests(service: Service, name: str) -> tuple[LaneCounts, int]:
    """What requests hold of a loaded model: units of its budget, and leases."""
    binding = service.models.registry.find(name)
    assert binding
    return binding.lane.counts, binding.leases

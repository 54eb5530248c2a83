"""One server process on the model's disk: the real application code between a faulty store and a puppet."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from tests.fakes.clock import VirtualClock, VirtualLoop
from tests.fakes.engine import PuppetEngine
from tests.floors import no_sessions, resident
from tests.model.store import Disk, Journal, Reader
from turnlog.adapters.openai.frames import Framer
from turnlog.app.turns.accept import Turns
from turnlog.app.turns.chains import Chains
from turnlog.app.turns.expiry import sweep
from turnlog.app.turns.in_flight import at_once
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites
from turnlog.app.turns.persistence import PendingAppends, Persistence
from turnlog.app.turns.preparation import Preparation
from turnlog.app.turns.recovery import recover
from turnlog.app.turns.retrieval import Log, Retrieval
from turnlog.app.turns.run import Limits
from turnlog.domain.events import ResponseCreated
from turnlog.domain.ports import IdSource
from turnlog.domain.response import Response

MODEL = "puppet"
GRACE_S = 5.0
"""How long a shutdown waits for turns and writes."""

SEATS = 2
"""How many turns the engine runs at once; the others wait."""

TOKEN_LIMIT_S, TURN_LIMIT_S = 600.0, 3_600.0

_Result = TypeVar("_Result")


class CountedRetains:
    """The `InstancePins` of one process, which has one model: how often it was pinned and retired by now."""

    def __init__(self) -> None:
        self.pinned = 0
        self.retired = 0

    def pin(self, instance_id: int) -> None:
        """One more."""
        self.pinned += 1

    def unpin(self, instance_id: int) -> None:
        """One less."""
        self.pinned -= 1

    def retire(self, instance_id: int) -> bool:
        """One more."""
        self.retired += 1
        return True

    def unretire(self, instance_id: int) -> None:
        """One less."""
        self.retired -= 1


class Unobserved:
    """A `TurnHooks` that nobody asks."""

    def began(self, created: ResponseCreated) -> None:
        """Nothing to tell."""

    def ended(self, response: Response) -> None:
        """Nothing to tell."""


class Server:
    """A process, wired as `app.server.bootstrap` wires it, with its own event loop.

    Args:
        now_s: what its loop's time begins with.
    """

    def __init__(self, disk: Disk, ids: IdSource, now_s: float) -> None:
        self.loop = VirtualLoop(now_s)
        self.clock = VirtualClock(self.loop)
        self.journal = Journal(disk)
        self.reader = Reader(disk)
        self.engine = PuppetEngine(MODEL, concurrency=SEATS)
        self.pins = CountedRetains()
        self.pending: PendingAppends = PendingWrites()
        self.live = LiveTurns()
        self.retrieval = Retrieval(cast(Log, self.reader), self.live, self.pending, self.clock)
        self.persistence = Persistence(self.journal, self.pending, self.pins, self.live, self.clock)
        self.turns = Turns(
            preparation=Preparation(
                models=resident({MODEL: self.engine}, self.clock),
                chains=Chains(self.retrieval, self.pending, self.clock, max_length=100),
                retrieval=self.retrieval,
                prefix_cache=no_sessions(self.clock),
                in_turn=at_once,
                boot_id="boot",
            ),
            live=self.live,
            persistence=self.persistence,
            load=self.journal,
            clock=self.clock,
            ids=ids,
            new_framer=lambda _: Framer(),
            limits=Limits(TOKEN_LIMIT_S, TURN_LIMIT_S),
            hooks=Unobserved(),
            strict=False,
            idempotency_grace_s=0,
        )

    @property
    def now_s(self) -> float:
        """Virtual seconds since the beginning of all."""
        return self.loop.time()

    def ask(self, what: Coroutine[Any, Any, _Result]) -> "asyncio.Task[_Result]":
        """Begin something, and let it come as far as it comes at once."""
        task = self.loop.create_task(what)
        self.loop.run_for()
        return task

    def start(self) -> "asyncio.Task[int]":
        """Recover what an earlier process left; then take turns."""
        return self.ask(recover(self.journal, self.reader, self.clock, lambda _: None))

    def sweep(self) -> None:
        """Let expired content go, from now on and every few minutes."""
        self.ask(sweep(self.journal, self.persistence, self.clock))

    def die(self) -> None:
        """Be gone: no line of this process has an effect any more."""
        self.journal.crashed = True
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_for()
        self.loop.close()

"""Turns, their clients and a store that may fail at every append, in any order hypothesis can think of.

A rule is something that happens to a server: a request, a word of the engine, time passing, a crash. Each
says by an argument of its own what the appends made meanwhile meet (`Fault`). The application's code is the
real one; store, engine and time are the model's. After each step the invariants compare what the server
holds, what is on the disk and what the clients were told.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model import answers
from tests.model.invariants import INVARIANTS
from tests.model.server import GRACE_S, MODEL
from tests.model.store import Fault, Reads
from tests.model.world import Meanwhile, World
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    Cancelled,
    End,
    EngineFailed,
    EngineOutput,
    Exhausted,
    ReasoningChunk,
    TextChunk,
)
from turnlog.domain.request import TurnRequest

# A failure is shrunk for minutes, until it is short enough to be read.
pytestmark = pytest.mark.timeout(400)

SAYINGS = (TextChunk("one "), TextChunk("two <"), ReasoningChunk("hm "))
GOOD_ENDINGS: tuple[EngineOutput, ...] = (
    End(finish_reason="stop", text="Hello", prompt_tokens=1, output_tokens=1),
    End(finish_reason="length", text="Hello", prompt_tokens=1, output_tokens=1),
)
BAD_ENDINGS: tuple[EngineOutput, ...] = (
    End(finish_reason="error", text="", prompt_tokens=1, output_tokens=1),
    EngineFailed("it broke"),
    Exhausted(),
    Cancelled(),
)
UNKNOWN = "resp_unknown"

# More of what keeps a story going than of what ends it.
any_faults = st.lists(st.sampled_from([*[Fault.WEDGED] * 6, *Fault]), max_size=2)
any_verdicts = st.lists(st.sampled_from([*[Fault.LANDS] * 4, *Fault]), max_size=2)
any_reads = st.sampled_from([*[Reads.WORK] * 4, *Reads])
any_meanwhile = st.sampled_from([*[Meanwhile.NOTHING] * 3, *Meanwhile])
any_ending = st.sampled_from([*GOOD_ENDINGS * 4, *BAD_ENDINGS])
any_retention_s = st.sampled_from([None, 60, 60, 600])
# Powers of two, so that sums of them are exact.
any_seconds = st.sampled_from([0.125, 1.0, 32.0, 32.0, 64.0, 64.0, 256.0, 1024.0])
a_while_s = st.sampled_from([0.0, 32.0])
# Most of what can go wrong goes wrong with a turn whose last write is under way.
any_turn = st.runner().flatmap(
    lambda model: st.sampled_from(
        [known.id for known in model.world.unsettled if known.committed] * 5
        or [*model.world.known, *model.world.known, UNKNOWN]
    )
)
unended_turn = st.runner().flatmap(lambda model: st.sampled_from(model.world.unended))
engine_turn = st.runner().flatmap(lambda model: st.sampled_from([*model.world.server.engine.running]))


class LifecycleUnderFaults(RuleBasedStateMachine):
    """A server and its clients, and what can happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    # ── what can happen ───────────────────────────────────────────────────────────────────────────

    @initialize(
        turns=st.lists(st.tuples(any_retention_s, any_faults, st.none() | any_ending), min_size=1, max_size=4)
    )
    def turns_were_asked_for(self, turns: list[tuple[int | None, list[Fault], EngineOutput | None]]) -> None:
        """Some have ended and some are running, so that there is something that things can happen to."""
        for retention_s, faults, ending in turns:
            self.a_turn_is_asked_for(
                seconds=0.0,
                previous=None,
                store=True,
                retention_s=retention_s,
                reads=Reads.WORK,
                meanwhile=Meanwhile.NOTHING,
                faults=[],
            )
            if ending and (running := list(self.world.server.engine.running)):
                self.the_engine_ends_a_turn(running[-1], 0.0, ending, faults)

    @rule(
        seconds=a_while_s,
        previous=any_turn | any_turn | st.none(),
        store=st.sampled_from([True, True, True, False]),
        retention_s=any_retention_s,
        reads=any_reads,
        meanwhile=any_meanwhile,
        faults=any_faults,
    )
    def a_turn_is_asked_for(
        self,
        *,
        seconds: float,
        previous: str | None,
        store: bool,
        retention_s: int | None,
        reads: Reads,
        meanwhile: Meanwhile,
        faults: list[Fault],
    ) -> None:
        """It may continue another one; it is accepted, or refused for the right reason."""
        request = TurnRequest(
            model=MODEL,
            input=(Message("user", "hi"),),
            previous_response_id=previous,
            store=store,
            retention_s=retention_s,
        )
        with self.world.facing([]) as server:
            server.loop.run_for(seconds)
        asked = self.world.moment(previous or UNKNOWN)
        accepts_new = self.world.server.journal.accepts_new
        with self.world.facing(faults) as server:
            code, turn = self.world.answer(server.turns.begin(request), reads, meanwhile)
            answered = self.world.moment(previous or UNKNOWN)
            if store and not accepts_new:
                assert code == "storage_unavailable"
            elif previous is None:
                assert code is None
            else:
                assert code == answers.to_continuation(asked, answered, reads), f"{asked}\n{answered}"
            if turn:
                self.world.accept(turn, previous)
            elif previous and asked.marked and answers.reached_the_marker(code, reads):
                self.world.known[previous].asked_ms = self.world.now_ms

    @precondition(lambda self: self.world.server.engine.running)
    @rule(turn=engine_turn, said=st.sampled_from(SAYINGS), faults=any_faults)
    def the_engine_says_something(self, turn: str, said: EngineOutput, faults: list[Fault]) -> None:
        """A piece of an answer."""
        with self.world.facing(faults) as server:
            server.engine.say(turn, said)

    @precondition(lambda self: self.world.server.engine.running)
    @rule(
        turn=engine_turn,
        seconds=a_while_s,
        ending=any_ending,
        faults=any_faults,
    )
    def the_engine_ends_a_turn(
        self, turn: str, seconds: float, ending: EngineOutput, faults: list[Fault]
    ) -> None:
        """That decides how the turn ended, unless it had ended before (D-25)."""
        known = self.world.known[turn]
        with self.world.facing([]) as server:
            server.loop.run_for(seconds)
        before = known.ended
        with self.world.facing(faults) as server:
            server.engine.say(turn, ending)
        if before:
            assert known.ended is before
        else:
            assert known.ended
            assert known.committed == (ending in GOOD_ENDINGS)

    @precondition(lambda self: self.world.server.engine.running)
    @rule(said=st.sampled_from(SAYINGS), ending=any_ending, faults=any_faults)
    def the_engine_ends_all_turns(
        self, said: EngineOutput, ending: EngineOutput, faults: list[Fault]
    ) -> None:
        """Those that waited for it begin."""
        with self.world.facing(faults) as server:
            for turn in list(server.engine.running):
                server.engine.say(turn, said)
                server.engine.say(turn, ending)

    @precondition(lambda self: self.world.unended)
    @rule(turn=unended_turn, obedient=st.booleans(), faults=any_faults)
    def a_client_leaves(self, turn: str, obedient: bool, faults: list[Fault]) -> None:
        """An obedient engine stops at once; another goes on until it is left alone."""
        watched = self.world.known[turn].watched
        assert watched
        with self.world.facing(faults) as server:
            server.engine.obedient = obedient
            server.loop.call_soon(watched.abort, "client_abort")

    @precondition(lambda self: self.world.known)
    @rule(seconds=any_seconds, faults=any_faults)
    def time_passes(self, seconds: float, faults: list[Fault]) -> None:
        """Limits pass, responses expire, deltas that were gathered are stored."""
        with self.world.facing(faults) as server:
            server.loop.run_for(seconds)

    @precondition(lambda self: self.world.server.journal.stuck)
    @rule(seconds=any_seconds, verdicts=any_verdicts, faults=any_faults)
    def writes_settle(self, seconds: float, verdicts: list[Fault], faults: list[Fault]) -> None:
        """In time or late, each by its verdict; what is appended because of that meets `faults`."""
        with self.world.facing(faults) as server:
            server.loop.run_for(seconds)
            self.world.observe()
            server.journal.settle(verdicts)

    @precondition(lambda self: self.world.known)
    @rule(turn=any_turn, reads=any_reads, meanwhile=any_meanwhile, faults=any_faults)
    def a_response_is_read(self, turn: str, reads: Reads, meanwhile: Meanwhile, faults: list[Fault]) -> None:
        """It is told as far as it has come, or as it is stored; its events are those that are stored."""
        asked = self.world.moment(turn)
        with self.world.facing(faults) as server:
            code, found = self.world.answer(server.retrieval.response(turn), reads, meanwhile)
            right = answers.to_reading(asked, self.world.moment(turn), reads)
            assert code in right, f"{code}, not {right}: {asked}"
            if found and asked.told:
                assert found.response.ended == asked.told.ended
            elif found:
                assert [found.response.ended] == self.world.disk.ends(turn)

            stored = list(self.world.disk.streams.get(turn, ()))
            code, events = self.world.answer(server.retrieval.events(turn), Reads.WORK, meanwhile)
            if events is None:
                assert code == answers.NOT_FOUND
                assert not stored or self.world.moment(turn).alone in answers.GONE
            else:
                assert events[: len(stored)] == stored
                assert events == self.world.disk.streams[turn][: len(events)]

    @precondition(lambda self: self.world.in_motion)
    @rule(landed=st.integers(0, 3), faults=any_faults)
    def the_process_is_killed(self, landed: int, faults: list[Fault]) -> None:
        """So many of the writes under way have landed; the recovery meets `faults`."""
        self.world.server.journal.die(landed)
        self.world.restart(faults)

    @precondition(lambda self: self.world.in_motion)
    @rule(obedient=st.booleans(), verdicts=any_verdicts, faults=any_faults)
    def the_server_is_shut_down(self, obedient: bool, verdicts: list[Fault], faults: list[Fault]) -> None:
        """Every turn has ended when the grace time is over; then the store is closed."""
        with self.world.facing(faults) as server:
            server.engine.obedient = obedient
            server.ask(server.turns.shut_down(GRACE_S))
            server.loop.run_for(GRACE_S)
            self.world.observe()
            assert server.journal.crashed or not self.world.unended
            server.journal.settle(verdicts)
            server.loop.run_for()
            server.journal.close()
        if self.world.server is server:
            self.world.restart()

    # ──────────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def all_is_well(self) -> None:
        """See `tests.model.invariants`."""
        for holds in INVARIANTS:
            holds(self.world)

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.world.server.die()


TestLifecycleUnderFaults = LifecycleUnderFaults.TestCase
TestLifecycleUnderFaults.settings = settings(max_examples=200, stateful_step_count=25)

"""The whole floor under any sequence of requests, loads, swaps, unloads and late writes.

After each step nothing is lost, held twice or held by nobody; at the end nothing is left (issue: "as code").
"""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.app.models.accounts import Accounts, Write
from tests.app.models.floor import WAIT_S, FakeSource, Floor, Request
from tests.fakes.engine import PuppetEngine
from turnlog.domain.errors import QueueFullError

NAMES = ("a", "alias", "b", "c")
names = st.sampled_from(NAMES)
chances = st.integers(0, 99)


class FloorMachine(RuleBasedStateMachine):
    """Three models that do not all fit, one of them with two names, on a floor where two may wait."""

    def __init__(self) -> None:
        super().__init__()
        a, b, c = (
            FakeSource("a", weight_bytes=40),
            FakeSource("b", weight_bytes=60, concurrency=2),
            FakeSource("c", weight_bytes=30),
        )
        self.sources = (a, b, c)
        self.floor = Floor({"a": a, "alias": a, "b": b, "c": c}, budget_bytes=100, max_waiting=2)
        self.floor.threads.held = True
        self.accounts = Accounts(self.floor, self.sources)

    # ── requests ──

    @rule(name=names, tokens=st.sampled_from([0, 5, 30]), yields=st.sampled_from([False, False, True]))
    def a_request_comes(self, name: str, tokens: int, yields: bool) -> None:
        try:
            self.accounts.requests.append(self.floor.admitted(name, tokens, yields=yields))
        except QueueFullError:
            assert not yields

    @rule(name=names, tokens=st.sampled_from([0, 30]))
    def a_request_comes_and_goes_on(self, name: str, tokens: int) -> None:
        with suppress(QueueFullError):
            self.accounts.requests.append(self.floor.request(name, tokens))

    @precondition(lambda self: self.accounts.alive("admitted"))
    @rule(chance=chances)
    def a_request_takes_its_lease(self, chance: int) -> None:
        self.one_of(chance, "admitted").take_lease()

    @precondition(lambda self: self.accounts.alive("leased"))
    @rule(chance=chances)
    def a_request_asks_for_its_seat(self, chance: int) -> None:
        self.one_of(chance, "leased").sit()

    @precondition(lambda self: self.accounts.alive("running"))
    @rule(chance=chances)
    def a_turn_ends(self, chance: int) -> None:
        self.one_of(chance, "running").release()

    @precondition(lambda self: self.accounts.alive())
    @rule(chance=chances)
    def a_client_leaves(self, chance: int) -> None:
        self.one_of(chance).cut_short()

    @precondition(lambda self: self.accounts.alive())
    @rule(chance=chances, other=chances, ticks=st.integers(0, 4))
    def a_client_leaves_while_it_is_called(self, chance: int, other: int, ticks: int) -> None:
        """Something that lets others go on, and in the middle of what follows from it a client leaves."""
        left = self.one_of(chance)
        with self.floor.at_once():
            if self.floor.threads and other % 2:
                self.floor.threads.go_on()
            elif running := self.accounts.alive("running"):
                running[other % len(running)].release()
            for _ in range(ticks):
                self.floor.tick()
            left.cut_short()

    def one_of(self, chance: int, *stages: str) -> Request:
        """One of the requests at a stage."""
        alive = self.accounts.alive(*stages)
        return alive[chance % len(alive)]

    # ── operators ──

    @rule(name=names)
    def an_operator_loads(self, name: str) -> None:
        self.accounts.operators.append(self.floor.begin(self.floor.models.load(name)))

    @rule(name=names)
    def an_operator_unloads(self, name: str) -> None:
        self.accounts.operators.append(self.floor.begin(self.floor.models.unload(name)))

    @rule(name=names, to=names)
    def an_operator_swaps(self, name: str, to: str) -> None:
        self.accounts.operators.append(self.floor.begin(self.floor.models.swap(name, to)))

    @precondition(lambda self: self.accounts.operators)
    @rule(chance=chances)
    def an_operator_leaves(self, chance: int) -> None:
        self.accounts.operators[chance % len(self.accounts.operators)].cancel()

    @precondition(lambda self: self.floor.models.resident())
    @rule(chance=chances)
    def a_name_means_nothing_for_a_moment(self, chance: int) -> None:
        """The same object is unbound and bound again."""
        resident = self.floor.models.resident()
        binding = resident[chance % len(resident)]
        name, engine = next(iter(binding.names)), binding.engine
        assert isinstance(engine, PuppetEngine)
        self.floor.do(lambda: self.floor.models.registry.unbind(name))
        wedged = any(write.retired and write.engine is engine for write in self.accounts.writes)
        if not binding.held and not wedged:
            self.accounts.forget(engine)
        self.floor.do(lambda: self.floor.models.registry.bind(name, engine, now_s=0))

    # ── what they wait for ──

    @precondition(lambda self: self.floor.threads)
    @rule()
    def a_load_or_a_close_is_done(self) -> None:
        self.floor.go_on()

    @rule(chance=st.integers(0, 2), error=st.sampled_from([None, None, "no such file"]))
    def a_file_comes_or_goes(self, chance: int, error: str | None) -> None:
        self.sources[chance].error = error

    @rule(seconds=st.sampled_from([1, WAIT_S / 2, WAIT_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.floor.run(seconds)

    @rule(count_bytes=st.sampled_from([5, 20]))
    def something_is_kept_warm(self, count_bytes: int) -> None:
        if reservation := self.floor.models.memory.take("warm", count_bytes):
            self.accounts.warm.append(reservation)

    # ── writes ──

    @precondition(lambda self: self.accounts.alive("running"))
    @rule(chance=chances)
    def a_turn_begins_its_last_write(self, chance: int) -> None:
        lease = self.one_of(chance, "running").admission.lease
        assert isinstance(lease.engine, PuppetEngine)
        self.accounts.writes.append(Write(lease.engine, lease.instance_id))
        self.floor.models.registry.pin(lease.instance_id)

    @precondition(lambda self: any(write.pinned for write in self.accounts.writes))
    @rule(chance=chances)
    def a_write_passes_its_hard_limit(self, chance: int) -> None:
        pinned = [write for write in self.accounts.writes if write.pinned]
        write = pinned[chance % len(pinned)]
        write.retired = self.floor.models.registry.retire(write.instance_id)
        write.pinned = False
        assert write.retired
        self.floor.do(lambda: self.floor.models.registry.unpin(write.instance_id))

    @precondition(lambda self: self.accounts.writes)
    @rule(chance=chances)
    def a_write_settles(self, chance: int) -> None:
        write = self.accounts.writes.pop(chance % len(self.accounts.writes))
        if write.retired:
            self.floor.models.registry.unretire(write.instance_id)
        if write.pinned:
            self.floor.do(lambda: self.floor.models.registry.unpin(write.instance_id))

    # ── what must hold ──

    @invariant()
    def the_accounts_agree(self) -> None:
        """R-034 … R-037, R-041 … R-045, R-053, R-054, R-060 … R-066, R-068 … R-077."""
        self.accounts.check()

    def teardown(self) -> None:
        """Everything comes to its end."""
        try:
            for source in self.sources:
                source.error = None
            self.let_all_end()
            for name in NAMES:
                self.floor.begin(self.floor.models.unload(name)).result()
            while self.accounts.writes:
                self.a_write_settles(0)
            for reservation in self.accounts.warm:
                reservation.release()
            self.accounts.check_all_is_given_back()
        finally:
            self.floor.close()

    def let_all_end(self) -> None:
        """Requests and operators; turns that keep each other's models in memory are refused in time."""
        self.floor.threads.held = False
        while self.floor.threads:
            self.floor.go_on()
        for _ in range(len(self.accounts.requests) + len(self.accounts.operators)):
            for request in self.accounts.alive():
                request.take_lease()
                request.sit()
                request.release()
            self.accounts.check()
            self.floor.run(WAIT_S)


TestModelFloor = FloorMachine.TestCase
TestModelFloor.settings = settings(max_examples=120, stateful_step_count=30)

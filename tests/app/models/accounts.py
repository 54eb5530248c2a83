"""What every request, write and load must hold, counted from what they did, and compared with the floor."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from tests.app.models.floor import FakeSource, Floor, Request, Task
from tests.fakes.engine import PuppetEngine
from turnlog.app.models.admission import ColdAdmission
from turnlog.app.models.lane import Lane, Reservation
from turnlog.app.models.memory import MemoryReservation
from turnlog.app.models.registry import Binding
from turnlog.domain.errors import ResponsesError

REFUSED = {"queue_full", "engine_error", "model_unavailable", "binding_changed"}
OVER = {"done", "cut short"} | REFUSED
WAITS_FOR_MODEL = {"admitted", "loading"}
PLACED = {"queued", "running"}
LEASING = {"leased"} | PLACED


class Write(Struct, eq=False):
    """The last write of a turn: it pins the id of its model, or has retired it because it is wedged."""

    engine: PuppetEngine
    instance_id: int
    pinned: bool = True
    retired: bool = False


class Accounts:
    """Everything that was asked of a floor and is not over, and the checks of it."""

    def __init__(self, floor: Floor, sources: Iterable[FakeSource]) -> None:
        self._floor = floor
        self._models = floor.models
        self._sources = list(sources)
        self.requests: list[Request] = []
        self.operators: list[Task[object]] = []
        self.writes: list[Write] = []
        self.warm: list[MemoryReservation] = []
        self._bindings: list[Binding] = []
        self._ids: dict[PuppetEngine, int] = {}
        self._told: list[PuppetEngine] = []
        self._models.give_up_first(self._shrink, self._told_of)

    def _shrink(self, missing_bytes: int) -> int:
        given_up = 0
        while self.warm and given_up < missing_bytes:
            reservation = self.warm.pop()
            given_up += reservation.count_bytes
            reservation.release()
        return given_up

    def _told_of(self, engine: object) -> None:
        assert isinstance(engine, PuppetEngine)
        self._told.append(engine)

    def alive(self, *stages: str) -> list[Request]:
        """The requests that are not over; with stages, those that have come to one of them."""
        return [each for each in self.requests if not each.is_over and (not stages or each.where in stages)]

    def check(self) -> None:
        """Compare; everything that could be done must have been done."""
        self._bindings = list({*self._bindings, *self._models.registry._by_engine.values()})
        self._check_requests()
        self._check_budgets()
        self._check_gate_and_memory()
        self._check_bindings()
        self._check_ids()
        self._check_engines()
        self._check_nobody_waits_in_vain()
        self.requests = self.alive()
        self.operators = [each for each in self.operators if not each.is_done]

    def _check_requests(self) -> None:
        for request in self.requests:
            assert request.is_over == (request.where in OVER), request.where
        for operator in self.operators:
            assert not operator.is_done or isinstance(operator.error, ResponsesError | None)

    def _check_budgets(self) -> None:
        """R-034 … R-037: one unit of one budget each, as a cold admission, a reservation or a slot."""
        reservations: set[Reservation] = set()
        cold: Counter[str] = Counter()
        for request in self.alive("admitted", "loading", "leased"):
            admission = request.admission._begun
            if isinstance(admission, ColdAdmission):
                assert request.where in WAITS_FOR_MODEL
                cold[request.name] += 1
                reservations.update(filter(None, [admission._reservation]))
            elif isinstance(admission, Reservation) and not admission.yields:
                reservations.add(admission)
        assert self._models._cold._waiting.keys() == cold.keys()
        assert {name: self._models._cold.count(name) for name in cold} == cold
        lanes = {binding.lane for binding in self._bindings}
        assert {reservation for lane in lanes for reservation in lane._reservations} == reservations
        for lane in lanes:
            self._check_lane(lane)

    def _check_lane(self, lane: Lane) -> None:
        placed = [each for each in self.alive(*PLACED) if each.admission.lease.lane is lane]
        yielding = sum(each.yields for each in placed)
        counts = lane.counts
        assert counts.active + counts.queued + len(lane._yielding) == len(placed)
        assert len(lane._yielding) <= yielding
        assert counts.active <= lane.capacity
        assert sum(each.where == "running" for each in placed) <= counts.active
        most = lane.max_waiting
        assert most is not None
        assert sum(counts) <= most + lane.capacity
        if counts.active < lane.capacity:
            assert not counts.queued
            assert not lane._yielding or sum(counts) == most + lane.capacity

    def _check_gate_and_memory(self) -> None:
        gate, memory = self._models.gate, self._models.memory
        active = sum(lane.counts.active for lane in {binding.lane for binding in self._bindings})
        kinds = Counter(each.kind for each in [*gate._inside, *gate._readers, *gate._writers])
        assert kinds["read"] == active
        assert kinds["write"] <= 1
        if kinds["write"]:
            assert memory.is_waited_for
        else:
            assert not gate._readers
        weights = [engine.info.weight_bytes for engine in self._open()]
        weights += [source.weight_bytes for source in self._floor.threads.reading]
        assert memory.used == Counter(
            weights=sum(weights),
            running=sum(each.tokens for each in self.alive("running")),
            warm=sum(reservation.count_bytes for reservation in self.warm),
        )
        assert memory.budget_bytes is not None
        assert memory.used.total() <= memory.budget_bytes

    def _check_bindings(self) -> None:
        """R-060, R-064 … R-071: each is held by its names, leases and pins, and by nothing else."""
        registry = self._models.registry
        leases = Counter(each.admission.lease.binding for each in self.alive(*LEASING))
        pins = Counter(write.instance_id for write in self.writes if write.pinned)
        for binding in self._bindings:
            known = registry._by_engine.get(binding.engine) is binding
            assert known == binding.held
            assert binding.leases == leases[binding]
            assert binding.pins == (pins[binding.instance_id] if known else 0)
        meant = {name: binding for binding in self._bindings for name in binding.names}
        assert registry._by_name == meant
        asking = Counter(each.name for each in self.alive("loading"))
        assert +self._models._asking == asking

    def _check_ids(self) -> None:
        """R-061, R-072, R-073: an object has one id while it is known or a wedged write carries it."""
        registry = self._models.registry
        retired: dict[PuppetEngine, Counter[int]] = {}
        for write in self.writes:
            if write.retired:
                retired.setdefault(write.engine, Counter())[write.instance_id] += 1
        tombstones = {
            engine: Counter({each.instance_id: each.writes})
            for engine, each in registry._retired_ids._by_engine.items()
        }
        assert tombstones == retired
        held = {binding.engine: binding.instance_id for binding in registry._by_engine.values()}
        assert len(set(held.values())) == len(held)
        for engine, instance_id in held.items():
            assert isinstance(engine, PuppetEngine)
            assert self._ids.get(engine, instance_id) == instance_id
        for engine, ids in retired.items():
            assert held.get(engine, *ids) in ids
        self._ids = {engine: held[engine] for engine in held if isinstance(engine, PuppetEngine)}

    def forget(self, engine: PuppetEngine) -> None:
        """The object has been nobody's for a moment: it may have another id from now on (R-064)."""
        self._ids.pop(engine, None)

    def _check_engines(self) -> None:
        """Each is closed once, when nobody means or has it any more, and not before its caches are told."""
        swaps = +self._models._swaps
        kept = self._models._loading._engines
        for source, engine in kept.items():
            assert self._models.registry.is_used(engine) or source in swaps
            assert isinstance(engine, PuppetEngine)
            assert not engine.closed
        for binding in self._bindings:
            if binding.names or binding.leases:
                assert binding.engine in kept.values()
        engines = [engine for source in self._sources for engine in source.engines]
        gone = [engine for engine in engines if engine not in kept.values()]
        assert sorted(map(id, self._told)) == sorted(map(id, gone))
        assert all(engine.closed <= 1 for engine in gone)
        assert bool(swaps) <= bool(self.operators)

    def _check_nobody_waits_in_vain(self) -> None:
        """While every model is idle and nothing runs or comes free, a load has its memory."""
        models = self._models
        idle = all(map(models._is_idle, models.resident())) and not any(
            each.leases for each in self._bindings
        )
        if idle and not self._floor.threads:
            assert not models.memory.is_waited_for
        if not self.alive() and not self._floor.threads:
            assert not self._models.memory.is_waited_for
            assert all(operator.is_done for operator in self.operators)

    def _open(self) -> list[PuppetEngine]:
        return [engine for source in self._sources for engine in source.engines if not engine.closed]

    def check_all_is_given_back(self) -> None:
        """Nothing is under way any more, and nothing is left of it."""
        models = self._models
        assert (self.requests, self.operators, self.writes) == ([], [], [])
        assert (models.registry._by_engine, len(models.registry._retired_ids)) == ({}, 0)
        assert ({*models.gate._inside, *models.gate._readers, *models.gate._writers}) == set()
        assert (+models.memory.used, models.memory.is_waited_for) == (Counter(), False)
        assert (+models._asking, +models._swaps, models._loading._under_way) == (Counter(), Counter(), {})
        assert (models._loading._reservations, self._open()) == ({}, [])

"""What happens on this server in numbers, for Prometheus (docs/operations.md lists them).

What concerns a turn is read from its events, so that the metrics and the log agree. What is so at this very
moment is asked of the living objects when the metrics are read. Labels are names of models, states and
codes, never an owner, an id or anything a client wrote.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from turnlog.app.models.memory import Memory, Use
from turnlog.app.models.status import ModelStatus, State
from turnlog.app.turns.pending import Sizes
from turnlog.domain.budgets import Budget
from turnlog.domain.events import TurnFailed
from turnlog.domain.ports import JournalLoad
from turnlog.domain.response import Response, api_status

_TURN_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)
_WAIT_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WRITE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 5, 30, 60)
_LAG_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_TOKENS_PER_S = (1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 200, 300, 500)


class PoolSize(NamedTuple):
    """The number of cache entries, and their memory."""

    entries: int
    size_bytes: int


class Sources(NamedTuple):
    """The living objects that are asked whenever the metrics are read, on the event loop."""

    models: Callable[[], Iterable[ModelStatus]]
    pending: Callable[[], Sizes]
    load: JournalLoad
    memory: Memory
    warm: Callable[[], PoolSize]


class Metrics:
    """The metrics of one service, in its own registry. Any thread may count, the event loop reads."""

    def __init__(self, sources: Sources) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_Now(sources))
        self._budgets = _Budgets()
        registry.register(self._budgets)

        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(f"turnlog_{name}", description, labels, registry=registry)

        def histogram(name: str, description: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"turnlog_{name}", description, labels, registry=registry, buckets=buckets)

        self._turns = counter("turns", "Turns that ended.", "model", "state", "reason")
        self._input = counter("input_tokens", "Prompt tokens of ended turns.", "model")
        self._cached = counter("cached_tokens", "Prompt tokens served from the prefix cache.", "model")
        self._output = counter("output_tokens", "Output tokens of ended turns.", "model")
        self._cache = counter("cache", "Turns that reached the engine, by cache class.", "model", "class")
        self._refusals = counter("refusals", "Refused requests, by error code.", "code")
        self._store_failures = counter("store_failures", "Failed writes to the store, by error code.", "code")
        self._queue = histogram("queue_seconds", "Time from acceptance to a slot.", _WAIT_S, "model")
        self._first = histogram(
            "first_token_seconds", "Time from a slot to the first token.", _WAIT_S, "model"
        )
        self._rate = histogram("decode_tokens_per_second", "Decode rate.", _TOKENS_PER_S, "model")
        self._turn = histogram("turn_seconds", "Turn duration.", _TURN_S, "model", "state")
        self._write = histogram("store_write_seconds", "Time until a write is durable.", _WRITE_S)
        self._lag = histogram("loop_lag_seconds", "Event loop lag.", _LAG_S)

    def turn_ended(self, response: Response) -> None:
        """Count a turn; to be called once, when its last event has been recorded."""
        created, started, ended = response.created, response.started, response.ended
        assert ended, f"{created.response_id} has not ended"
        model, state = created.model, api_status(response)
        reason = ended.reason if isinstance(ended, TurnFailed) else ""
        self._turns.labels(model, state, reason).inc()
        self._turn.labels(model, state).observe((ended.at_ms - created.at_ms) / 1000)
        # One that was stopped in the queue waited, too.
        self._queue.labels(model).observe(((started or ended).at_ms - created.at_ms) / 1000)
        if started:
            self._cache.labels(model, started.cache_class).inc()
        self._input.labels(model).inc(ended.usage.input_tokens)
        self._cached.labels(model).inc(ended.usage.cached_tokens or 0)
        self._output.labels(model).inc(ended.usage.output_tokens)
        if ended.timing.first_token_ms is not None:
            self._first.labels(model).observe(ended.timing.first_token_ms / 1000)
        if ended.timing.decode_tokens_per_s is not None:
            self._rate.labels(model).observe(ended.timing.decode_tokens_per_s)

    def turn_lost(self, response: Response) -> None:
        """Count a turn that an earlier process left and this one ended; nobody knows how long it took."""
        ended = response.ended
        assert isinstance(ended, TurnFailed), f"{response.id} has not failed"
        self._turns.labels(response.created.model, api_status(response), ended.reason).inc()

    def show(self, *budgets: Budget) -> None:
        """Tell of these budgets, too."""
        self._budgets.shown += budgets

    def refused(self, code: str) -> None:
        """Count a request that was refused with this error code."""
        self._refusals.labels(code).inc()

    def written(self, seconds: float) -> None:
        """Count a write that became durable so long after it was handed over."""
        self._write.observe(seconds)

    def write_failed(self, code: str) -> None:
        """Count a write that failed with this error code."""
        self._store_failures.labels(code).inc()

    def loop_lagged(self, seconds: float) -> None:
        """Count a timer of the event loop that fired so late."""
        self._lag.observe(seconds)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics in a format that an `Accept` header allows, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Now:
    """Gauges of what is so at this moment."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Ask the living objects."""
        models = list(self._sources.models())
        states = Tally(model.state for model in models)
        used = self._sources.memory.used
        yield _gauges("models", "Models by state.", "state", {each: states[each] for each in get_args(State)})
        running = {each.name: each.active_turns for each in models}
        yield _gauges("active_turns", "Turns that hold a slot.", "model", running)
        waiting = {each.name: each.queued_turns for each in models}
        yield _gauges("queue_depth", "Turns that wait for a slot, queued or not yet.", "model", waiting)
        permits = {each.name: each.reservations for each in models}
        yield _gauges("permits", "Reservations: waiting turns not yet in the queue.", "model", permits)
        limits = {each.name: inf if each.queue_limit is None else each.queue_limit for each in models}
        yield _gauges("queue_limit", "Maximum number of waiting turns.", "model", limits)
        crashes = CounterMetricFamily("turnlog_engine_crashes", "Crashes of the engine.", labels=["model"])
        for each in models:
            crashes.add_metric([each.name], each.restarts)
        yield crashes
        yield _gauges(
            "memory_bytes", "Memory in use, by use.", "use", {each: used[each] for each in get_args(Use)}
        )
        for name, (description, value) in self._unlabelled().items():
            yield GaugeMetricFamily(f"turnlog_{name}", description, value=value)

    def _unlabelled(self) -> dict[str, tuple[str, float]]:
        sources = self._sources
        sizes, warm, budget_bytes = sources.pending(), sources.warm(), sources.memory.budget_bytes
        return {
            "memory_budget_bytes": (
                "Memory budget.",
                inf if budget_bytes is None else budget_bytes,
            ),
            "warm_entries": ("Cache entries.", warm.entries),
            "warm_bytes": ("Memory of the cache entries.", warm.size_bytes),
            "pending_writes": ("Pending writes of committed turns.", sizes.writes),
            "wedged_writes": ("Pending writes past their hard limit.", sizes.markers),
            "store_queued_bytes": ("Bytes in memory that wait for the store.", sources.load.queued_bytes),
            "store_oldest_wait_seconds": (
                "Age of the oldest event that waits for the store.",
                sources.load.oldest_queued_s(),
            ),
        }


class _Budgets:
    """The budgets: their limits, how much of them is in use, and how often they were reached."""

    def __init__(self) -> None:
        self.shown: list[Budget] = []

    def collect(self) -> Iterator[Metric]:
        """Ask the budgets."""
        limit = GaugeMetricFamily("turnlog_budget_limit", "How much there is.", labels=["budget"])
        in_use = GaugeMetricFamily("turnlog_budget_in_use", "How much is in use.", labels=["budget"])
        reached = CounterMetricFamily(
            "turnlog_budget_reached", "How often there was no more.", labels=["budget"]
        )
        for budget in self.shown:
            limit.add_metric([budget.name], budget.limit)
            in_use.add_metric([budget.name], budget.in_use())
            reached.add_metric([budget.name], budget.reached)
        yield from (limit, in_use, reached)


def _gauges(name: str, description: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"turnlog_{name}", description, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family

"""The metrics: turns by their events, writes when they settle, and what is so when they are read."""

import re
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.app.exposed import Described, described, samples
from tests.domain.stories import COMMITTED, CREATED, FAILED, STARTED
from tests.fakes.clock import VirtualLoop
from tests.fakes.journal import Calls, NotingJournal
from turnlog.app.models.memory import Memory
from turnlog.app.models.status import ModelStatus, State
from turnlog.app.operations.loop_lag import watch_loop
from turnlog.app.operations.measured_journal import MeasuredJournal
from turnlog.app.operations.metrics import Metrics, PoolSize, Sources
from turnlog.app.turns.pending import Sizes
from turnlog.domain.budgets import Budget
from turnlog.domain.errors import StorageRefusedError
from turnlog.domain.events import FailureReason, Recorded, ResponseEvent
from turnlog.domain.response import fold
from turnlog.domain.usage import Timing, Usage

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"

FULL_STORY = (
    CREATED,
    replace(STARTED, cache_class="hit"),
    replace(
        COMMITTED,
        usage=Usage(input_tokens=30, output_tokens=5, cached_tokens=20),
        timing=Timing(first_token_ms=250.0, decode_tokens_per_s=40.0),
    ),
)


class Behind:
    """A journal that is behind with its writes."""

    accepts_new = False
    queued_bytes = 4_096

    def oldest_queued_s(self) -> float:
        """So long."""
        return 1.5


def entry(name: str, state: State, *, active: int = 0, queued: int = 0) -> ModelStatus:
    """A model as it is listed."""
    return ModelStatus(
        name=name,
        state=state,
        registered_s=0,
        instance_id=None,
        weight_bytes=0,
        aliases=(),
        capacity=1,
        active_turns=active,
        queued_turns=queued,
    )


def make_metrics(*models: ModelStatus, memory: Memory | None = None) -> Metrics:
    """Metrics of a service with these models."""
    return Metrics(
        Sources(
            models=lambda: models,
            pending=lambda: Sizes(writes=2, markers=1, expiries=3),
            load=Behind(),
            memory=memory or Memory(None),
            warm=lambda: PoolSize(entries=3, size_bytes=600),
        )
    )


def told(metrics: Metrics) -> str:
    """What a reader without wishes is told."""
    return metrics.exposition("")[0].decode()


def count(*story: ResponseEvent) -> Metrics:
    """Metrics that have counted this turn alone."""
    metrics = make_metrics()
    metrics.turn_ended(fold(story))
    return metrics


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────

OF_TURNS = (
    "turns",
    "turn_seconds",
    "queue_seconds",
    "first_token_seconds",
    "decode_tokens_per_second",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cache",
)


def test_a_turn_that_stands_is_counted_by_its_events() -> None:
    metrics = count(*FULL_STORY)

    assert samples(told(metrics), *OF_TURNS) == {
        "turns_total{model=tiny,reason=,state=completed}": 1,
        "turn_seconds_count{model=tiny,state=completed}": 1,
        "turn_seconds_sum{model=tiny,state=completed}": 2.0,
        "queue_seconds_count{model=tiny}": 1,
        "queue_seconds_sum{model=tiny}": 0.01,
        "first_token_seconds_count{model=tiny}": 1,
        "first_token_seconds_sum{model=tiny}": 0.25,
        "decode_tokens_per_second_count{model=tiny}": 1,
        "decode_tokens_per_second_sum{model=tiny}": 40.0,
        "input_tokens_total{model=tiny}": 30,
        "cached_tokens_total{model=tiny}": 20,
        "output_tokens_total{model=tiny}": 5,
        "cache_total{class=hit,model=tiny}": 1,
    }


@pytest.mark.parametrize(
    ("reason", "state"),
    [("error", "failed"), ("engine_timeout", "failed"), ("cancelled", "cancelled")],
)
def test_a_turn_that_failed_is_counted_by_its_reason(reason: FailureReason, state: str) -> None:
    """Its tokens count, too: they were read and written."""
    failed = replace(FAILED, reason=reason, usage=Usage(input_tokens=3, output_tokens=1))

    metrics = count(CREATED, STARTED, failed)

    assert samples(told(metrics), "turns", "turn_seconds", "input_tokens", "output_tokens", "first") == {
        f"turns_total{{model=tiny,reason={reason},state={state}}}": 1,
        f"turn_seconds_count{{model=tiny,state={state}}}": 1,
        f"turn_seconds_sum{{model=tiny,state={state}}}": 2.0,
        "input_tokens_total{model=tiny}": 3,
        "output_tokens_total{model=tiny}": 1,
    }


def test_a_turn_that_was_stopped_in_the_queue_has_waited_and_had_no_cache() -> None:
    metrics = count(CREATED, replace(FAILED, reason="client_abort"))

    assert samples(told(metrics), "turns", "queue_seconds", "cache_total") == {
        "turns_total{model=tiny,reason=client_abort,state=failed}": 1,
        "queue_seconds_count{model=tiny}": 1,
        "queue_seconds_sum{model=tiny}": 2.0,
    }


def test_services_count_apart() -> None:
    """No registry is the process's: a test, or a program with two servers, sees its own."""
    metrics = count(*FULL_STORY)

    assert samples(told(make_metrics()), "turns") == {}
    assert samples(told(metrics), "turns") == {"turns_total{model=tiny,reason=,state=completed}": 1}


# ── the store and the loop ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (None, {"store_write_seconds_count": 1}),
        (
            StorageRefusedError("full", "no space"),
            {"store_write_seconds_count": 0, "store_failures_total{code=storage_full}": 1},
        ),
        (KeyError("a bug"), {"store_write_seconds_count": 0, "store_failures_total{code=server_error}": 1}),
    ],
    ids=["durable", "refused", "a bug"],
)
def test_every_write_is_counted_when_it_settles(error: Exception | None, counted: dict[str, float]) -> None:
    metrics, journal = make_metrics(), NotingJournal(Calls())
    write = MeasuredJournal(journal, metrics).append([Recorded("resp_1", 1, COMMITTED)])
    under_way = samples(told(metrics), "store_write_seconds_count", "store_failures")

    if error:
        journal.last.set_exception(error)
    else:
        journal.last.set_result(None)

    assert under_way == {"store_write_seconds_count": 0}
    assert samples(told(metrics), "store_write_seconds_count", "store_failures") == counted
    assert (write.done(), write.exception()) == (True, error)


def test_the_loops_lag_is_how_late_its_timer_fires() -> None:
    """A callback that takes 0.3 s from second 0.4 on holds up a timer that is due at 0.5."""
    lags: list[float] = []
    with closing(VirtualLoop()) as loop:

        def hold_up() -> None:
            loop._now_s += 0.3

        watch = loop.create_task(watch_loop(lags.append))
        loop.call_later(0.4, hold_up)
        loop.run_for(1.3)
        watch.cancel()
        loop.run_for()

    assert lags == [pytest.approx(0.2), pytest.approx(0.0)]


# ── what is so now ────────────────────────────────────────────────────────────────────────────────


def test_what_is_so_now_is_asked_when_the_metrics_are_read() -> None:
    memory = Memory(1_000)
    metrics = make_metrics(
        entry("qwen", "resident", active=2, queued=1), entry("small", "declared"), memory=memory
    )
    before = samples(told(metrics), "memory_bytes")
    memory.take("weights", 700)
    memory.take("running", 30)

    assert before == {
        "memory_bytes{use=weights}": 0,
        "memory_bytes{use=running}": 0,
        "memory_bytes{use=warm}": 0,
    }
    assert samples(
        told(metrics),
        "models",
        "active",
        "queue_depth",
        "memory",
        "warm",
        "pending",
        "wedged",
        "store_q",
        "store_o",
    ) == {
        "models{state=declared}": 1,
        "models{state=loading}": 0,
        "models{state=resident}": 1,
        "active_turns{model=qwen}": 2,
        "active_turns{model=small}": 0,
        "queue_depth{model=qwen}": 1,
        "queue_depth{model=small}": 0,
        "memory_bytes{use=weights}": 700,
        "memory_bytes{use=running}": 30,
        "memory_bytes{use=warm}": 0,
        "memory_budget_bytes": 1_000,
        "warm_entries": 3,
        "warm_bytes": 600,
        "pending_writes": 2,
        "wedged_writes": 1,
        "store_queued_bytes": 4_096,
        "store_oldest_wait_seconds": 1.5,
    }


# ── formats and documentation ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("accept", "content_type", "ends"),
    [
        ("", "text/plain", False),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", True),
    ],
)
def test_the_format_is_one_that_the_reader_takes(accept: str, content_type: str, *, ends: bool) -> None:
    """OpenMetrics says where it ends, the older format does not."""
    content, told_type = make_metrics().exposition(accept)

    assert told_type.split(";")[0] == content_type
    assert content.endswith(b"# EOF\n") == ends


def test_the_documentation_lists_every_metric() -> None:
    """With its type and its labels, and lists no other."""
    metrics = make_metrics(entry("qwen", "resident"))
    metrics.turn_ended(fold(FULL_STORY))
    metrics.refused("queue_full")
    metrics.write_failed("storage_full")
    metrics.show(Budget("connections", 10))
    rows = re.findall(
        r"^\| `(turnlog_\w+)` \| (\w+) \| ([\w, ]*)\| ", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE
    )

    documented = {
        Described(name, kind, tuple(sorted(re.findall(r"\w+", labels)))) for name, kind, labels in rows
    }

    assert documented == described(told(metrics))

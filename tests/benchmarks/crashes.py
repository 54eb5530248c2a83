"""Kills and freezes the engine process again and again, under streams, and counts what became of them."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx
from rich.table import Table

from tests.benchmarks.stall import Latencies, asking
from tests.faults.witness import listening
from tests.serving import LONG_S, RunningServer, serving
from tests.waiting import until
from turnlog.app.models.crashes import MOST_CRASHES

STREAMS = 16
TOKENS = 8_000


class _Beside:
    """Short turns of the other model, one after the other, on a thread of its own."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self.stopped = Event()
        self.seen: Counter[str] = Counter()

    def ask(self) -> None:
        """The life of the thread."""
        body = {"model": "two", "input": "hi", "max_output_tokens": 5, "temperature": 0}
        with self._server.client(timeout_s=LONG_S) as http:
            while not self.stopped.is_set():
                answer = http.post("/v1/responses", json=body)
                self.seen[str(answer.status_code)] += 1


@contextmanager
def _others(server: RunningServer) -> Iterator[tuple[_Beside, Latencies]]:
    beside = _Beside(server)
    with ThreadPoolExecutor(max_workers=1) as pool, asking(server.address) as latencies:
        asked = pool.submit(beside.ask)
        try:
            yield beside, latencies
        finally:
            beside.stopped.set()
        asked.result()


def _streamed(server: RunningServer, begun: Event) -> str:
    """How one stream of the model ended: the name of its terminal frame, or that it had none."""
    with (
        server.client(timeout_s=LONG_S) as http,
        listening(http, "go on", model="one", max_output_tokens=TOKENS, temperature=0) as turn,
    ):
        try:
            turn.until("output_text.delta")
        finally:
            begun.set()
        for _ in turn:
            pass
    if not turn.ended:
        return "no terminal frame"
    return "engine_crashed" if b'"engine_crashed"' in turn.told[-4_000:] else "ended"


def _process_id(http: httpx.Client) -> int | None:
    found: int | None = http.get("/v1/models/one").json()["process_id"]
    return found


def _is_red(http: httpx.Client) -> bool:
    return http.get("/health/ready").status_code == 503


def table(model: Path, folder: Path, *, kills: int, freezes: int) -> Table:
    """What happened in so many rounds of each."""
    found = Table("what", "measured", "aim")
    arguments = [f"--model=one={model}", f"--model=two={_copied(model, folder)}"]
    ends: Counter[str] = Counter()
    red_s: list[float] = []
    next_s: list[float] = []
    environ = {"TURNLOG_MAX_STREAMS_PER_OWNER": "64", "TURNLOG_MAX_QUEUED_TURNS_PER_OWNER": "64"}
    with (
        serving(folder / "crashes.db", *arguments, **environ) as server,
        server.client(timeout_s=LONG_S) as http,
    ):
        http.post("/v1/models/load", json={"name": "two"})
        load_s = _next_turn_s(http)
        with _others(server) as (beside, latencies), ThreadPoolExecutor(STREAMS) as pool:
            for round_ in range(kills + freezes):
                if round_ % (MOST_CRASHES - 1) == 0:
                    http.post("/v1/models/load", json={"name": "one"})  # begins a new count
                begun = [Event() for _ in range(STREAMS)]
                streams: list[Future[str]] = [pool.submit(_streamed, server, each) for each in begun]
                for each in begun:
                    each.wait(60)
                red_s.append(_hurt(http, signal.SIGSTOP if round_ >= kills else signal.SIGKILL))
                next_s.append(_next_turn_s(http))
                ends.update(each.result() for each in streams)
    found.add_row("ends of streams", ", ".join(f"{count} {end}" for end, count in ends.items()), "")
    found.add_row("turns of the other model", str(dict(beside.seen)), "all 200")
    found.add_row("s to a first turn, with its load", f"{load_s:.2f}", "")
    found.add_row("s to the next turn after a crash, worst", f"{max(next_s):.2f}", f"{load_s + 1:.2f}")
    found.add_row("s until /health/ready is red, worst", f"{max(red_s):.2f}", "2")
    for percent in (50, 99, 100):
        found.add_row(f"ms of /health, p{percent}", f"{latencies.percentile_ms(percent):.1f}", "200")
    return found


def _hurt(http: httpx.Client, number: signal.Signals) -> float:
    """Send a signal to the process; the seconds until the server says that it is not ready, or ready again.

    Of a process that is stopped, also wait until it was ended.
    """
    pid = until(lambda: _process_id(http))
    assert pid
    os.kill(pid, number)
    began = time.perf_counter()
    until(lambda: _is_red(http) or _process_id(http) not in (pid, None))
    seconds = time.perf_counter() - began
    until(lambda: _process_id(http) != pid)
    return seconds


def _next_turn_s(http: httpx.Client) -> float:
    began = time.perf_counter()
    body = {"model": "one", "input": "hi", "max_output_tokens": 1, "temperature": 0}
    http.post("/v1/responses", json=body).raise_for_status()
    return time.perf_counter() - began


def _copied(model: Path, folder: Path) -> Path:
    copy = folder / "copy"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy

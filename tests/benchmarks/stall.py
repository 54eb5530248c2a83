"""What holds up `/health`: its latency while the processes of a model are busy; and what they cost idle."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import httpx
from rich.table import Table

from tests.faults.test_crash import children_of
from tests.serving import LONG_S, RunningServer, serving
from turnlog.adapters.system import resident_bytes

PAUSE_S = 0.005
MEGABYTE = 10**6


class Latencies:
    """Asks for `/health` without end, on a thread and a connection of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = Event()
        self.seconds: list[float] = []

    def ask(self) -> None:
        """The life of the thread."""
        with httpx.Client(base_url=self._address, timeout=60) as http:
            while not self._stop.is_set():
                began = time.perf_counter()
                http.get("/health").raise_for_status()
                self.seconds.append(time.perf_counter() - began)
                time.sleep(PAUSE_S)

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def percentile_ms(self, percent: float) -> float:
        """So many percent of the answers came as fast."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000


@contextmanager
def asking(address: str) -> Iterator[Latencies]:
    """Latencies from beginning to end of the block."""
    latencies = Latencies(address)
    with ThreadPoolExecutor(max_workers=1) as pool:
        asked = pool.submit(latencies.ask)
        try:
            yield latencies
        finally:
            latencies.stop()
        asked.result()


def _post(http: httpx.Client, **body: Any) -> None:
    http.post("/v1/responses", json={"model": "one", "max_output_tokens": 1, "store": False} | body)


def _reads(http: httpx.Client, round_: int) -> None:
    _post(http, input=f"{round_} " + "the sea and the wind " * 300)


def _loads(http: httpx.Client, _: int) -> None:
    http.post("/v1/models/load", json={"name": "two"})
    http.post("/v1/models/unload", json={"name": "two"})


def _compiles(http: httpx.Client, round_: int) -> None:
    properties = {
        f"field_{round_}_{number}": {"type": "string", "pattern": "^([a-z]{1,40}[0-9]{1,40}){1,40}$"}
        for number in range(100)
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    _post(http, input="hi", text={"format": {"type": "json_schema", "name": "big", "schema": schema}})


def _encodes(http: httpx.Client, _: int) -> None:
    _post(http, input="the sea and the wind " * 490_000)


BUSY: dict[str, Callable[[httpx.Client, int], None]] = {
    "nothing": lambda *_: time.sleep(0.1),
    "reads prompts": _reads,
    "loads and unloads a model": _loads,
    "compiles constraints": _compiles,
    "encodes 10 MB": _encodes,
}


def tables(model: Path, folder: Path, seconds: float) -> list[Table]:
    """The latency of `/health` by what the server is doing, and what it takes before it does anything."""
    arguments = [f"--model={name}={model}" for name in ("one",)] + [f"--model=two={_copied(model, folder)}"]
    found = Table("while it", "asked", "p50, ms", "p99, ms", "worst, ms")
    cost = Table("what", "measured")
    began = time.perf_counter()
    room = {"TURNLOG_MAX_BODY_BYTES": str(16 * MEGABYTE)}
    with (
        serving(folder / "turnlog.db", *arguments, **room) as server,
        server.client(timeout_s=LONG_S) as http,
    ):
        http.get("/health")
        cost.add_row("s from the start to the first /health", f"{time.perf_counter() - began:.2f}")
        cost.add_row("MB of the server", _megabytes(server.process.pid))
        http.post("/v1/models/load", json={"name": "one"})
        cost.add_row("MB of the server with a model", _megabytes(server.process.pid))
        for child in children_of(server.process.pid):
            cost.add_row(f"MB of {_module(child)}, idle", _megabytes(child))
        for what, work in BUSY.items():
            latencies = _while_busy(server, work, seconds)
            row = (latencies.percentile_ms(percent) for percent in (50, 99, 100))
            found.add_row(what, f"{len(latencies.seconds):,}", *(f"{each:.1f}" for each in row))
    return [cost, found]


def _while_busy(
    server: RunningServer, work: Callable[[httpx.Client, int], None], seconds: float
) -> Latencies:
    with server.client(timeout_s=LONG_S) as http, asking(server.address) as latencies:
        ends, round_ = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            with suppress(httpx.TimeoutException):
                work(http, round_)
            round_ += 1
    return latencies


def _copied(model: Path, folder: Path) -> Path:
    other = folder / "other"
    other.mkdir()
    for file in model.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    return other


def _megabytes(pid: int) -> str:
    return f"{resident_bytes(pid) / MEGABYTE:.0f}"


def _module(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[words.index(b"-m") + 1].decode().rpartition(".")[2]

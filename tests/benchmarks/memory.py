"""Memory of a server that serves many turns, and of one that has nothing to do."""

import time
from pathlib import Path

import httpx
from rich.table import Table

from tests.serving import serving

TURNS_OF_A_CHAIN = 10
SHOWN_AT = (1, 10, 100, 300, 1_000)
WARM_BYTES = 64 * 2**20
WARM_TTL_S = 60
IDLE_S = 2
"""An hour without turns, shortened: caches expire after seconds, and free memory is given back."""


def table(name: str, model: Path, folder: Path, turns: int) -> Table:
    """What the process has of the machine's memory, and the warm caches of that (Linux)."""
    found = Table(f"{name}: memory", "of the process, MB", "of warm caches, MB")
    environ = {
        "TURNLOG_WARM_BYTES": str(WARM_BYTES),
        "TURNLOG_WARM_TTL_S": str(WARM_TTL_S),
        "TURNLOG_IDLE_CLEAR_CACHE_MS": str(IDLE_S * 1000),
    }
    with (
        serving(folder / "turnlog.db", "--model", f"model={model}", **environ) as server,
        httpx.Client(base_url=server.address, timeout=600) as http,
    ):

        def show(when: str) -> None:
            found.add_row(
                when, f"{_resident_bytes(server.process.pid) / 1e6:,.0f}", f"{_warm_bytes(http) / 1e6:,.0f}"
            )

        previous = None
        for number in range(1, turns + 1):
            if number % TURNS_OF_A_CHAIN == 1:
                previous = None
            body = {
                "model": "model",
                "input": f"Tell me fact {number} about the sea.",
                "max_output_tokens": 8,
            }
            answer = http.post("/v1/responses", json=body | {"previous_response_id": previous})
            answer.raise_for_status()
            previous = answer.json()["id"]
            if number in SHOWN_AT:
                show(f"after {number:,} turns")
        # What has expired is looked for twice in that time, at least.
        time.sleep(2 * WARM_TTL_S + 2 * IDLE_S)
        show("after a pause")
    return found


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def _warm_bytes(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("turnlog_warm_bytes")).split()[1])

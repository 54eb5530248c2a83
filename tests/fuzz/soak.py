"""Sends many generated requests to a scripted server and says what became of it.

python -m tests.fuzz.soak 100000 [SEED]
"""

import asyncio
import gzip
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
import zstandard

from tests.fuzz.bodies import CANARY, raw_body
from tests.fuzz.client import Connection, check, request
from tests.fuzz.server import fuzzed

CLIENTS = 8
WARM_UP = 2_000
"""Requests after which the server has imported, opened and cached what it will."""


class Usage(NamedTuple):
    """What a process has of the system."""

    memory_mb: float
    threads: int
    files: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """As Linux tells it."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return cls(int(lines["VmRSS"].split()[0]) / 1024, int(lines["Threads"]), files)


class Soak:
    """The state of one run: what was answered, and which responses there are to be read again."""

    def __init__(self, address: str, seed: int) -> None:
        self.statuses: Counter[int | str] = Counter()
        self.troubles: list[str] = []
        self._address = address
        self._seed = seed
        self._known: list[str] = []

    async def send(self, first: int, count: int) -> None:
        """Send the requests of these numbers, several at a time."""
        numbers = iter(range(first, first + count))
        await asyncio.gather(*(self._client(numbers) for _ in range(CLIENTS)))

    async def _client(self, numbers: Iterator[int]) -> None:
        connection = Connection.to(self._address)
        for number in numbers:
            try:
                await self._one(connection, number)
            except Exception as error:
                self.troubles.append(f"request {number} of seed {self._seed}: {error!r}"[:500])
                connection.hang_up()
        connection.hang_up()

    async def _one(self, connection: Connection, number: int) -> None:
        random = Random(f"{self._seed} {number}")
        sent = self._request(random)
        if random.random() < 0.02:
            await connection.leave_after(sent[: random.randrange(1, len(sent) + 1)])
            self.statuses["left"] += 1
            return
        answer = await connection.ask(sent)
        self.statuses[answer.status] += 1
        if answer.status >= 500:
            self.troubles.append(
                f"request {number} of seed {self._seed}: {answer.status} {answer.body[:300]!r}"
            )
        check(answer)
        _, found, rest = answer.body.partition(b'"id":"resp_')
        if found and answer.status == 200:
            self._known = [*self._known[-50:], "resp_" + rest[:32].decode()]

    def _request(self, random: Random) -> bytes:
        choice = random.random()
        if choice < 0.1 and self._known:
            tail = random.choice(("", "?stream=true", "?stream=true&starting_after=3", "/events"))
            return request(b"", route=f"GET /v1/responses/{random.choice(self._known)}{tail}")
        if choice < 0.13:
            path = random.choice(("/health/ready", "/v1/models", "/openapi.json", f"/v1/{random.random()}"))
            return request(b"", route=f"GET {path}")
        body = raw_body(random)
        if choice < 0.16:
            return request(gzip.compress(body), "Content-Encoding: gzip")
        if choice < 0.19:
            return request(zstandard.compress(body), "Content-Encoding: zstd")
        return request(body)


async def run(address: str, pid: int, count: int, seed: int) -> list[str]:
    """Send the requests; what went wrong. Prints the figures."""
    soak = Soak(address, seed)
    await soak.send(0, min(WARM_UP, count))
    before, began_s = Usage.of(pid), time.monotonic()
    await soak.send(WARM_UP, count - WARM_UP)
    took_s = time.monotonic() - began_s
    # What was left behind is let go of within moments.
    await asyncio.sleep(2)
    click.echo(f"{count} requests, {(count - WARM_UP) / max(took_s, 0.001):.0f} a second")
    click.echo(f"answers: {dict(sorted(soak.statuses.items(), key=str))}")
    broken = sum(
        count for status, count in soak.statuses.items() if str(status) >= "500" and status != "left"
    )
    click.echo(f"5xx: {broken}")
    click.echo(f"after {WARM_UP}: {before}")
    click.echo(f"at the end:  {Usage.of(pid)}")
    return soak.troubles


def leaks(log: Path) -> list[str]:
    """The lines of a server's log that tell content, or of a bug."""
    return [line for line in log.read_text().splitlines() if CANARY in line or "Traceback" in line]


def main() -> int:
    """Run it by the arguments of the command line."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        with fuzzed(Path(folder)) as server:
            troubles = asyncio.run(run(server.address, server.process.pid, count, seed))
        found = leaks(Path(folder) / "log")
    click.echo(f"log: {len(found)} lines with content or a traceback")
    for trouble in (*troubles[:10], *found[:10]):
        click.echo(f"TROUBLE {trouble}")
    return 1 if troubles or found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Sends many generated requests of several owners to a scripted server and says what became of it.

python -m tests.fuzz.soak 100000 [SEED]

Among them are audits and the worst that one owner can do; a well-behaved client beside them says how long it
waits (`tests.fuzz.bystander`).
"""

import asyncio
import gzip
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple

import click
import httpx
import msgspec
import zstandard

from tests.fuzz.bodies import CANARY, raw_body
from tests.fuzz.bystander import Waits
from tests.fuzz.client import Connection, check, request
from tests.fuzz.server import fuzzed
from turnlog.adapters.keys import KeyFile
from turnlog.domain.owners import Role

CLIENTS = 8
OWNERS = ("alice", "mallory")
AUDITOR, OPERATOR, BYSTANDER = "ada", "olga", "bob"
ROLES = {AUDITOR: Role.AUDITOR, OPERATOR: Role.OPERATOR}

MOST_WAIT_MS = 1_000
MOST_HEALTH_MS = 200
MOST_MEMORY_MB = 1_000
TRACE_S = 5
"""After how long nothing is left of an abandoned request."""
WARM_UP = 2_000
"""Requests after which the server has imported, opened and cached what it will."""


class Usage(NamedTuple):
    """What a process has of the system, and the most memory that it had."""

    memory_mb: float
    peak_mb: float
    threads: int
    files: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """As Linux tells it."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        memory_mb, peak_mb = (int(lines[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))
        return cls(memory_mb, peak_mb, int(lines["Threads"]), files)


class Soak:
    """The state of one run: what was answered, and which responses there are to be read again.

    Args:
        keys: by who has them; without any, everybody is one owner and there are no audits.
    """

    def __init__(self, address: str, seed: int, keys: Mapping[str, str] = MappingProxyType({})) -> None:
        self.statuses: Counter[int | str] = Counter()
        self.troubles: list[str] = []
        self._address = address
        self._seed = seed
        self._keys = keys
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
        owner = random.choice(OWNERS)
        if owner == "mallory" and self._keys and random.random() < 0.02:
            await self._abuse(random)
            return
        sent = self._request(random, owner)
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

    def _request(self, random: Random, owner: str) -> bytes:
        choice = random.random()
        if choice < 0.1 and self._known:
            tail = random.choice(
                ("", "?stream=true", "?stream=true&starting_after=3", "/events", "/input_items")
            )
            return self._sent(owner, route=f"GET /v1/responses/{random.choice(self._known)}{tail}")
        if choice < 0.13:
            path = random.choice(("/health/ready", "/v1/models", "/openapi.json", f"/v1/{random.random()}"))
            return self._sent(owner, route=f"GET {path}")
        if choice < 0.15 and self._known and self._keys:
            return self._sent(AUDITOR, route=f"GET /v1/audit/{self._audit(random)}")
        body = raw_body(random)
        if choice < 0.18:
            return self._sent(owner, gzip.compress(body), "Content-Encoding: gzip")
        if choice < 0.21:
            return self._sent(owner, zstandard.compress(body), "Content-Encoding: zstd")
        return self._sent(owner, body)

    def _audit(self, random: Random) -> str:
        one, other = random.choice(self._known), random.choice(self._known)
        return random.choice(
            (
                f"responses?q={random.choice(('hi', 'k4n', 'a'))}&limit=5",
                f"responses/{one}",
                f"chains/{one}",
                f"compare?a={one}&b={other}",
                "usage?by=owner",
            )
        )

    async def _abuse(self, random: Random) -> None:
        """Do what costs a server most for what it costs a client, and leave before any of it is done."""
        large = {"model": "scripted", "input": "hi", "instructions": "x" * 900_000, "stream": True}
        large["tools"] = [
            {"type": "function", "name": f"f{n}", "description": "y" * 9_000} for n in range(300)
        ]
        sent = self._sent("mallory", json.dumps(large).encode())
        if self._known and random.random() < 0.7:
            known = random.choice(self._known)
            tail = random.choice(("", "?stream=true", "/input_items"))
            going_on = {"model": "scripted", "input": "and?", "previous_response_id": known}
            sent = random.choice(
                (
                    self._sent("mallory", route=f"GET /v1/responses/{known}{tail}"),
                    self._sent("mallory", json.dumps(going_on | {"background": True}).encode()),
                    self._sent("mallory", json.dumps(going_on | {"stream": True}).encode()),
                )
            )
        host, _, port = self._address.removeprefix("http://").partition(":")
        opened = [await asyncio.open_connection(host, int(port), limit=1024) for _ in range(8)]
        for _, writer in opened:
            writer.write(sent)
        await asyncio.sleep(random.choice((0, 0.1, 0.5)))
        for _, writer in opened:
            writer.transport.abort()
        self.statuses["abandoned"] += len(opened)

    def _sent(self, who: str, body: bytes = b"", *lines: str, route: str = "POST /v1/responses") -> bytes:
        key = self._keys.get(who)
        return request(body, *lines, *([f"Authorization: Bearer {key}"] if key else []), route=route)


@asynccontextmanager
async def beside(address: str, key: str) -> AsyncIterator[list[Waits]]:
    """A well-behaved client while the block runs; afterwards, its waits are in the list."""
    program = (sys.executable, "-m", "tests.fuzz.bystander", address, key)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe)
    waits: list[Waits] = []
    try:
        yield waits
    finally:
        told, _ = await process.communicate(b"")
        waits.append(msgspec.json.decode(told, type=Waits))


async def run(address: str, pid: int, count: int, seed: int, keys: Mapping[str, str]) -> list[str]:
    """Send the requests; what went wrong. Prints the figures."""
    soak = Soak(address, seed, keys)
    async with beside(address, keys[BYSTANDER]) as waits:
        await soak.send(0, min(WARM_UP, count))
        before, began_s = Usage.of(pid), time.monotonic()
        await soak.send(WARM_UP, max(0, count - WARM_UP))
        took_s = time.monotonic() - began_s
    await asyncio.sleep(TRACE_S)
    after = Usage.of(pid)
    click.echo(f"{count} requests, {max(0, count - WARM_UP) / max(took_s, 0.001):.0f} a second")
    click.echo(f"answers: {dict(sorted(soak.statuses.items(), key=str))}")
    broken = sum(
        count for status, count in soak.statuses.items() if isinstance(status, int) and status >= 500
    )
    click.echo(f"5xx: {broken}")
    click.echo(f"after {WARM_UP}: {before}")
    click.echo(f"at the end:  {after}")
    click.echo(f"bystander: {waits[0].rounds} rounds, worst in ms: {waits[0].worst_ms}")
    return soak.troubles + _beyond(waits[0], after) + await _traces(address, keys)


def _beyond(waits: Waits, usage: Usage) -> list[str]:
    """What the bystander and the memory say against the server."""
    slow = [
        f"the bystander waited {took_ms} ms for {kind}"
        for kind, took_ms in waits.worst_ms.items()
        if took_ms > (MOST_HEALTH_MS if kind == "health" else MOST_WAIT_MS)
    ]
    large = [f"{usage.peak_mb} MB of memory"] if usage.peak_mb > MOST_MEMORY_MB else []
    return waits.troubles + slow + large


async def _traces(address: str, keys: Mapping[str, str]) -> list[str]:
    """What is left of requests that are over."""
    headers = {"Authorization": f"Bearer {keys[OPERATOR]}"}
    async with httpx.AsyncClient(base_url=address, headers=headers) as http:
        told = (await http.get("/metrics")).text
    left = re.findall(r'^turnlog_budget_in_use\{budget="(\w+)"\} ([\d.e+]+)$', told, re.MULTILINE)
    # One connection asks.
    usual = {"connections": 1.0, "stranger_log_lines": inf}
    return [f"{name}: {much} in use" for name, much in left if float(much) > usual.get(name, 0.0)]


def leaks(log: Path) -> list[str]:
    """The lines of a server's log that tell content, or of a bug."""
    return [line for line in log.read_text().splitlines() if CANARY in line or "Traceback" in line]


def main() -> int:
    """Run it by the arguments of the command line."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        file = KeyFile(Path(folder) / "turnlog.db")
        people = (*OWNERS, AUDITOR, OPERATOR, BYSTANDER)
        keys = {name: file.add(name, ROLES.get(name, Role.CLIENT), now_s=0)[1] for name in people}
        with fuzzed(Path(folder)) as server:
            troubles = asyncio.run(run(server.address, server.process.pid, count, seed, keys))
        found = leaks(Path(folder) / "log")
    click.echo(f"log: {len(found)} lines with content or a traceback")
    for trouble in (*troubles[:10], *found[:10]):
        click.echo(f"TROUBLE {trouble}")
    return 1 if troubles or found else 0


if __name__ == "__main__":
    sys.exit(main())

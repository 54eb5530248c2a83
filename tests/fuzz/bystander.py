"""A well-behaved client beside others: how long it waits at worst, in a process of its own.

python -m tests.fuzz.bystander ADDRESS KEY; it prints its figures as JSON when its standard input ends.
"""

import asyncio
import json
import sys
import time
from typing import Any

import httpx
import msgspec
from msgspec import Struct

PAUSE_S = 0.05


class Waits(Struct):
    """The longest wait for each kind of request in milliseconds, and the number of rounds."""

    worst_ms: dict[str, float] = {}
    rounds: int = 0
    troubles: list[str] = []

    def note(self, kind: str, took_s: float) -> None:
        """A request of this kind took so long."""
        self.worst_ms[kind] = max(self.worst_ms.get(kind, 0.0), round(took_s * 1000, 1))


class Bystander:
    """Asks for its health, a new turn, a continuation and what was stored of it, again and again."""

    def __init__(self, address: str, key: str) -> None:
        self.waits = Waits()
        self._http = httpx.AsyncClient(
            base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=60
        )

    async def go_on(self) -> None:
        """Until it is cancelled."""
        async with self._http:
            while True:
                await self._round()
                self.waits.rounds += 1
                await asyncio.sleep(PAUSE_S)

    async def _round(self) -> None:
        await self._ask("health", "GET", "/health")
        turn = await self._ask("turn", "POST", "/v1/responses", model="scripted", input="hi")
        going_on = {"model": "scripted", "input": "and?", "previous_response_id": turn.get("id")}
        continuation = await self._ask("continuation", "POST", "/v1/responses", **going_on)
        await self._ask("get", "GET", f"/v1/responses/{continuation.get('id')}")

    async def _ask(self, kind: str, method: str, path: str, **body: Any) -> dict[str, Any]:
        began_s = time.monotonic()
        answer = await self._http.request(method, path, json=body or None)
        self.waits.note(kind, time.monotonic() - began_s)
        if answer.status_code != 200:
            self.waits.troubles.append(f"{kind}: {answer.status_code} {answer.text[:300]}")
        told: dict[str, Any] = answer.json()
        return told


async def main() -> None:
    """Run it by the arguments of the command line."""
    bystander = Bystander(*sys.argv[1:])
    going = asyncio.create_task(bystander.go_on())
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait((going, ended), return_when=asyncio.FIRST_COMPLETED)
    going.cancel()
    if isinstance(error := (await asyncio.gather(going, return_exceptions=True))[0], Exception):
        bystander.waits.troubles.append(repr(error))
    print(json.dumps(msgspec.to_builtins(bystander.waits)), flush=True)  # noqa: T201 - its one result


if __name__ == "__main__":
    asyncio.run(main())

"""turnlog's own work, with the scripted engine in place of a model."""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from rich.table import Table

from tests.app.scripts import HELLO, STOP, Json, entry, write_script
from tests.app.services import asked, running
from tests.serving import RunningServer, serving
from turnlog.app.http.service import Service
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.events import Surface

TOKENS = 2_000
SCRIPT: Json = {
    "concurrency": 64,
    "turns": [entry("many", *[{"text": f"word{number} "} for number in range(TOKENS)], STOP), HELLO],
}


SURFACES: dict[str, Surface] = {"turns": "responses", "chats": "chat"}


async def frames_per_second(server: RunningServer, streams: int) -> float:
    """Frames that one client reads over HTTP, from that many streams at once."""
    host, port = server.address.removeprefix("http://").split(":")
    body = b'{"model":"scripted","input":"many","stream":true}'
    head = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def read_one() -> int:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        status = await reader.readline()
        assert b" 200 " in status, status
        seen, tail = 0, b""
        while not tail.endswith(b"0\r\n\r\n"):
            chunk = await reader.read(1 << 16)
            assert chunk, tail
            seen += chunk.count(b"event: ")
            tail = (tail + chunk)[-5:]
        writer.close()
        await writer.wait_closed()
        return seen

    began = time.perf_counter()
    frames = sum(await asyncio.gather(*(read_one() for _ in range(streams))))
    return frames / (time.perf_counter() - began)


async def read_all(turn: LiveTurn) -> None:
    """Read a stream to its end, as a client's connection does."""
    async for _ in turn.frames.read():
        pass


async def own_work_us(service: Service, turns: int, surface: Surface = "responses") -> float:
    """Processor time a token costs from the engine's chunk to frame and stored event, without HTTP."""
    began = time.process_time()
    running_turns = [await service.turns.begin(asked("many", surface=surface)) for _ in range(turns)]
    await asyncio.gather(*(read_all(turn) for turn in running_turns))
    await asyncio.gather(*(turn.settled.wait() for turn in running_turns))
    return (time.process_time() - began) / (turns * TOKENS) * 1e6


def stored_bytes(database: Path) -> int:
    """Bytes in the file's used pages."""
    with closing(sqlite3.connect(database)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


async def chain_ms(service: Service, length: int, repeats: int = 50) -> float:
    """Median time to read and fold a chain of that many turns."""
    previous: str | None = None
    for _ in range(length):
        turn = await service.turns.begin(asked("hi", previous_response_id=previous))
        await turn.settled.wait()
        previous = turn.response.id
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        chain = await service.turns.preparation.chains.resolve(previous)
        times.append((time.perf_counter() - began) * 1000)
        assert len(chain) == length
    return statistics.median(times)


async def measure() -> list[tuple[str, str, str]]:
    """Rows of what, how much, and the aim."""
    rows = []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        script = write_script(folder, SCRIPT)
        arguments = ("--engine", "scripted", "--script", str(script))
        room = {
            "TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL": "64",
            "TURNLOG_MAX_QUEUED_TURNS_PER_OWNER": "64",
        }
        with serving(folder / "http.db", *arguments, **room) as server:
            for streams in (1, 50):
                await frames_per_second(server, streams)
                rate = await frames_per_second(server, streams)
                rows.append((f"frames per second over HTTP, {streams} streams", f"{rate:,.0f}", ""))
        async with running(folder, SCRIPT, max_queue_depth_per_model=64) as service:
            await own_work_us(service, 1)
            rows += [
                (
                    f"µs of own work per token, {turns} {what}",
                    f"{await own_work_us(service, turns, surface):.1f}",
                    "< 25",
                )
                for turns in (1, 50)
                for what, surface in SURFACES.items()
            ]
            before = stored_bytes(folder / "turnlog.db")
            await own_work_us(service, 20)
            grown = stored_bytes(folder / "turnlog.db") - before
            rows.append(("SQLite bytes per output token", f"{grown / (20 * TOKENS):.1f}", ""))
            rows.append(("ms to rebuild a chain of 50 turns", f"{await chain_ms(service, 50):.2f}", "< 3"))
    return rows


def table() -> Table:
    """Measured now."""
    table = Table("what", "measured", "aim", box=None, pad_edge=False)
    for row in asyncio.run(measure()):
        table.add_row(*row)
    return table

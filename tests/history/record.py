"""Records the histories of this version: `python -m tests.history.record VERSION`, once per release.

A history is a file of stored events, one JSON object a line, with the stream they were told as beside it.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.app.scripts import HELLO, STOP, Json, entry
from tests.app.services import asked, running
from tests.fakes.journal import HeldJournal
from turnlog.adapters.openai.frames import frames
from turnlog.app.http.service import Service
from turnlog.domain.events import PersistHardTimedOut
from turnlog.domain.response import fold

CALL = {"id": "call_a", "name": "add", "arguments": '{"a":1}', "status": "ok"}


def ending(finish_reason: str, **fields: str) -> Json:
    """An end with a call."""
    return {"end": {"finish_reason": finish_reason, "tool_calls": [CALL]} | fields}


SCRIPT = {
    "turns": [
        entry("think", {"reasoning": "hm"}, {"text": "Hi"}, {"reasoning": "late"}, STOP),
        entry("cut", {"text": "Hel"}, {"end": {"finish_reason": "length"}}),
        entry("boom", {"reasoning": "hm"}, {"text": "Hel"}, {"raise": "it broke"}),
        entry("exhaust", {"text": "Hel"}),
        entry("hang", {"text": "Hel"}, {"hang": True}),
        entry("call", {"text": "\n"}, {"text": "<tool_call>"}, ending("tool_calls", text="")),
        entry("refuse", {"text": "Hi"}, ending("error")),
        HELLO,
    ]
}


async def record(folder: Path) -> None:
    """Write one history for each way a turn can go."""
    with tempfile.TemporaryDirectory() as work:
        async with running(Path(work), SCRIPT) as service:
            for way in ("text", "think", "cut", "boom", "exhaust", "call", "refuse"):
                turn = await service.turns.begin(asked(way, metadata={"team": "a"}, instructions="Be kind."))
                await turn.settled.wait()
                await write(service, turn.response.id, folder / way)
            left = await service.turns.begin(asked("hang", previous_response_id=None))
            left.abort("client_abort")
            await left.settled.wait()
            await write(service, left.response.id, folder / "client_abort")
    os.environ |= {
        "MLX_POST_COMMIT_PERSIST_TIMEOUT_MS": "1",
        "MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS": "2",
    }
    with tempfile.TemporaryDirectory() as work:
        held = HeldJournal()
        async with running(Path(work), SCRIPT, held) as service:
            turn = await service.turns.begin(asked("text"))
            await held.until(PersistHardTimedOut)
            held.land()
            await turn.settled.wait()
            await asyncio.wrap_future(held.append([]))
            await write(service, turn.response.id, folder / "hard_timed_out")


async def write(service: Service, response_id: str, path: Path) -> None:
    """The history of one response, and the stream it was told as."""
    events = [recorded.event for recorded in await service.retrieval.events(response_id)]
    lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    path.with_suffix(".jsonl").write_bytes(lines)
    path.with_suffix(".sse").write_bytes(b"".join(frames(events, fold(events))))


if __name__ == "__main__":
    target = Path(__file__).parent / sys.argv[1]
    target.mkdir()
    asyncio.run(record(target))

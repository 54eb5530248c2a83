"""A tool loop over SSE and over a WebSocket: how long it takes, and how many bytes its client sends."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from tests.app.http.sockets import opened
from tests.app.scripts import STOP, calling, entry, write_script
from tests.serving import RunningServer, serving

Json = dict[str, Any]

CALLS = 30
TOOLS: list[Json] = [
    {
        "type": "function",
        "name": f"tool_{number}",
        "description": "Does one of the things that an agent's tools do. " * 10,
        "parameters": {
            "type": "object",
            "properties": {f"field_{each}": {"type": "string"} for each in range(8)},
        },
    }
    for number in range(20)
]
"""As large as those of a coding agent: some 20 kB."""

OUTPUT = "a line of a file that was read\n" * 40


class Sent(NamedTuple):
    """What a loop has cost."""

    seconds: float
    size_bytes: int


def table(folder: Path, runs: int) -> Table:
    """The loop in three ways, the best of some runs each."""
    call = {"id": None, "name": "tool_0", "arguments": '{"field_0": "x"}'}
    script = {"turns": [entry("the end", {"text": "Done."}, STOP), calling("", call)]}
    arguments = ("--engine", "scripted", "--script", str(write_script(folder, script)))
    ways: dict[str, Callable[[RunningServer], Sent]] = {
        "SSE, everything sent again": _resending,
        "SSE, previous_response_id": _continuing,
        "WebSocket, previous_response_id": _on_one_connection,
    }
    shown = Table("way", "s", "bytes sent", title=f"A loop of {CALLS} calls, scripted engine")
    with serving(folder / "turnlog.db", *arguments) as server:
        for way, run in ways.items():
            best = min(run(server) for _ in range(runs))
            shown.add_row(way, f"{best.seconds:.2f}", f"{best.size_bytes:,}")
    return shown


def _outputs(items: list[Json], number: int) -> list[Json]:
    """The outputs of the calls among the items; the last one ends the loop."""
    text = "the end" if number == CALLS else OUTPUT
    return [
        {"type": "function_call_output", "call_id": item["call_id"], "output": text}
        for item in items
        if item["type"] == "function_call"
    ]


def _resending(server: RunningServer) -> Sent:
    history: list[Json] = [{"role": "user", "content": "Begin."}]

    def following(response: Json, outputs: list[Json]) -> Json:
        history.extend([*response["output"], *outputs])
        return {"input": history, "store": False}

    return _over_sse(server, {"input": history, "store": False}, following)


def _continuing(server: RunningServer) -> Sent:
    def following(response: Json, outputs: list[Json]) -> Json:
        return {"input": outputs, "previous_response_id": response["id"]}

    return _over_sse(server, {"input": "Begin."}, following)


def _over_sse(server: RunningServer, first: Json, following: Callable[[Json, list[Json]], Json]) -> Sent:
    size_bytes, asked = 0, first
    began_s = time.perf_counter()
    with server.http as http:
        for number in range(1, CALLS + 2):
            body = {"model": "scripted", "tools": TOOLS, "stream": True, **asked}
            request = http.build_request("POST", "/v1/responses", json=body)
            head = sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
            size_bytes += head + len(b"POST /v1/responses HTTP/1.1\r\n\r\n") + len(request.content)
            answer = http.send(request).raise_for_status().text
            response = json.loads(answer.split("data: ")[-2].strip())["response"]
            asked = following(response, _outputs(response["output"], number))
    assert response["output_text"] == "Done."
    return Sent(time.perf_counter() - began_s, size_bytes)


def _on_one_connection(server: RunningServer) -> Sent:
    began_s = time.perf_counter()
    with opened(server) as socket:
        sent: list[int] = []
        send = socket.connection.send
        asked: Json = {"input": "Begin."}
        for number in range(1, CALLS + 2):
            message = {
                "type": "response.create",
                "model": "scripted",
                "store": False,
                "tools": TOOLS,
                **asked,
            }
            data = json.dumps(message, separators=(",", ":"))
            sent.append(len(data) + 8)  # a frame's head and mask
            send(data)
            response = socket.until("response.completed")[-1]["response"]
            outputs = _outputs(response["output"], number)
            asked = {"input": outputs, "previous_response_id": response["id"]}
    assert response["output_text"] == "Done."
    return Sent(time.perf_counter() - began_s, sum(sent))

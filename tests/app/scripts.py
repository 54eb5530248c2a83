"""Scripts for the scripted engine, by the word that calls for them."""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]

STOP: Json = {"end": {"finish_reason": "stop"}}


def entry(match: str, *steps: Json) -> Json:
    """A turn that is played when the last user text contains `match`."""
    return {"match": match, "steps": list(steps)}


HELLO: Json = {"steps": [{"text": "Hel"}, {"text": "lo"}, STOP]}
"""What is played when nothing else fits."""


def calling(match: str, *calls: Json, text: str = "", said: str = "") -> Json:
    """A turn that ends in calls, after saying something."""
    steps = [{"text": said}] if said else []
    tool_calls = [{"status": "ok"} | call for call in calls]
    end = {"finish_reason": "tool_calls", "text": text, "tool_calls": tool_calls}
    return entry(match, *steps, {"end": end})


ADD_1: Json = {"id": "call_a", "name": "add", "arguments": '{"a":1}'}
ADD_2: Json = {"id": "call_b", "name": "add", "arguments": '{"a":2}'}

SCRIPT: Json = {
    "context_window": 200,
    "turns": [
        calling("call one", ADD_1, said="<tool_call>"),
        calling("call two", ADD_1, ADD_2),
        calling("call twins", ADD_1, ADD_1),
        calling("call nameless", ADD_1 | {"id": None}),
        calling("call member", {"id": "call_a", "name": "fs__read", "arguments": "{}"}),
        calling("call bare", {"id": "call_a", "name": "read", "arguments": "{}"}),
        calling("call patch", {"id": "call_a", "name": "patch", "arguments": '{"input":"*** x"}'}),
        calling("call aloud", ADD_1, said="Sure. ", text="Sure."),
        entry("slow", {"text": "Hel"}, {"sleep_ms": 300}, {"text": "lo"}, STOP),
        entry("fail late", {"text": "Hel"}, {"sleep_ms": 300}, {"raise": "it broke"}),
        entry(
            "think and call",
            {"reasoning": "hm"},
            {"text": "<tool_call>{}"},
            {"end": {"finish_reason": "tool_calls", "text": "", "tool_calls": [ADD_1 | {"status": "ok"}]}},
        ),
        entry(
            "lost",
            {"text": "<tool_call>{oops"},
            {"end": {"finish_reason": "stop", "text": "<tool_call>{oops"}},
        ),
        entry("long", *[{"text": f"{number} "} for number in range(300)], STOP),
        entry("think", {"reasoning": "hm"}, {"text": "Hi"}, STOP),
        entry("cut", {"text": "Hel"}, {"end": {"finish_reason": "length"}}),
        entry("boom", {"text": "Hel"}, {"raise": "it broke"}),
        entry("exhaust", {"text": "Hel"}),
        entry("hang", {"text": "Hel"}, {"hang": True}),
        entry("wait", {"hang": True}),
        entry(
            "refuse",
            {"text": "Hel"},
            {"end": {"finish_reason": "error", "tool_calls": [ADD_1 | {"status": "ok"}]}},
        ),
        HELLO,
    ],
}


def write_script(folder: Path, script: Json = SCRIPT) -> Path:
    """The script as a file."""
    path = folder / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    return path

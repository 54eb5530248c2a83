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

SCRIPT: Json = {
    "context_window": 200,
    "turns": [
        entry("long", *[{"text": f"{number} "} for number in range(300)], STOP),
        entry("think", {"reasoning": "hm"}, {"text": "Hi"}, STOP),
        entry("cut", {"text": "Hel"}, {"end": {"finish_reason": "length"}}),
        entry("boom", {"text": "Hel"}, {"raise": "it broke"}),
        entry("exhaust", {"text": "Hel"}),
        entry("hang", {"text": "Hel"}, {"hang": True}),
        HELLO,
    ],
}


def write_script(folder: Path, script: Json = SCRIPT) -> Path:
    """The script as a file."""
    path = folder / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    return path

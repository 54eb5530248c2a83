"""Declarations of scripted models, as options of `turnlog serve`."""

import json
from pathlib import Path

from tests.app.scripts import STOP

WEIGHT_BYTES = 1_500


def saying(folder: Path, **texts: str) -> tuple[str, ...]:
    """Models by name, each of which says one text; those that say the same are one model."""
    options = ["--engine", "scripted"]
    for name, text in texts.items():
        script = {"weight_bytes": WEIGHT_BYTES, "turns": [{"steps": [{"text": text}, STOP]}]}
        path = folder / f"{text}.json"
        path.write_text(json.dumps(script), encoding="utf-8")
        options += ["--model", f"{name}={path}"]
    return tuple(options)

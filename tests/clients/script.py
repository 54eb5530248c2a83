"""What the scripted engine plays for the clients: each entry by the words that call for it."""

import json
from pathlib import Path
from typing import Final

from tests.app.scripts import HELLO, STOP, Json, entry, write_script

NOTE: Final = "the secret is 42"
"""What the note says that Codex is asked to read."""

READ_NOTE: Final = "cat note.txt"

PATCH: Final = "*** Begin Patch\n*** Add File: made.txt\n+made by a patch\n*** End Patch\n"

SILENCE_MS: Final = 2_500
"""How long nothing is said when the model takes its time."""


def call(name: str, **arguments: object) -> Json:
    """A call of a tool as the engine tells it."""
    return {"name": name, "arguments": json.dumps(arguments)}


def calling(match: str, *calls: Json, thinking: str | None = None) -> Json:
    """A turn that says nothing and makes these calls."""
    thought = [] if thinking is None else [{"reasoning": thinking}]
    end = {"end": {"finish_reason": "tool_calls", "text": "", "tool_calls": list(calls)}}
    return entry(match, *thought, end)


def saying(match: str, *pieces: str, thinking: tuple[str, ...] = ()) -> Json:
    """A turn that thinks and then answers, piece by piece."""
    return entry(
        match, *({"reasoning": piece} for piece in thinking), *({"text": piece} for piece in pieces), STOP
    )


TOOL_LOOPS: Final = [
    ("add 1 and 2", ["the sum is 3", "1 and 2 make 3."]),
    ("add both pairs", ["the sum is 3", "the sum is 7", "They make 3 and 7."]),
    ("think, then add", ["the sum is 3", "1 and 2 make 3."]),
]
"""A question, what the tool answers, and what is said in the end."""

SCRIPT: Final[Json] = {
    "turns": [
        # What tools answered. A loop's second request ends with it.
        saying("the sum is 10", "That ", "makes 10."),
        saying("the sum is 7", "They make ", "3 and 7."),
        saying("the sum is 3", "1 and 2 ", "make 3."),
        saying("HELLO", "Shouted."),
        saying(NOTE, "The note ", "says 42."),
        saying("Success. Updated the following files", "Patched."),
        # What users ask.
        calling("add 1 and 2", call("add", a=1, b=2)),
        calling("add both pairs", call("add", a=1, b=2), call("add", a=3, b=4)),
        calling("add on", call("add", a=3, b=7)),
        calling("think, then add", call("add", a=1, b=2), thinking="A sum."),
        calling("add by namespace", call("math__add", a=1, b=2)),
        calling("add by mcp", call("mcp__math__add", a=1, b=2)),
        calling("shout hello", call("shout", input="hello")),
        calling("read the note", call("exec_command", cmd=READ_NOTE)),
        calling("make a file", call("apply_patch", input=PATCH)),
        calling(
            "run some code",
            call(
                "functions__exec",
                input=f"const out = await tools.exec_command({{cmd: '{READ_NOTE}'}}); text(out.output);",
            ),
        ),
        saying("think", "Thought ", "through.", thinking=("let me ", "see")),
        saying("weather as JSON", '{"city": "Paris", ', '"degrees": 21}'),
        saying("who am I", "You are Ada."),
        entry("boom", {"text": "Hel"}, {"raise": "it broke"}),
        entry("take your time", {"sleep_ms": SILENCE_MS}, {"text": "At "}, {"text": "last."}, STOP),
        HELLO,
    ]
}
"""One script for all clients; the longer words come before those that are part of them."""


def write_client_script(folder: Path) -> Path:
    """The script as a file."""
    return write_script(folder, SCRIPT)

"""What a client calls a thing, in a form that may stand in a log line or a sentence.

An answer does not give a megabyte back: only what looks like a name is shown. A log line has no content, and
what looks like a name may be a key: only the API's own names are in it.
"""

import re
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST = 10
_HOSTED = (
    "apply_patch", "code_interpreter", "computer", "file_search", "image_generation", "local_shell", "mcp",
    "shell", "web_search",
)  # fmt: skip
_OF_THE_API = {f"{tool}{part}" for tool in _HOSTED for part in ("", "_preview", "_call", "_call_output")}
UNNAMED = "(not a name)"


def named(given: object) -> str:
    """The type a client gave, or a word for one that is no name."""
    return given if isinstance(given, str) and _NAME.fullmatch(given) else UNNAMED


def logged(kinds: Iterable[str]) -> list[str]:
    """The types to tell an operator of, sorted and not too many; of an unknown one, its length."""
    told = {kind if kind in _OF_THE_API else f"unknown ({len(kind)} characters)" for kind in kinds}
    return sorted(told)[:_MOST]

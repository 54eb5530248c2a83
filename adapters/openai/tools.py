"""The tools of a request: decoded by their type, and echoed in the form the schema wants."""

import logging
from typing import Any

from msgspec.structs import asdict

from turnlog.adapters.openai.forms import CustomTool, FunctionTool, HostedTool, NamespaceTool, Tool
from turnlog.adapters.openai.shown import logged
from turnlog.adapters.openai.typed import typed

log = logging.getLogger("turnlog")

Json = dict[str, Any]


def read_tools(given: list[Any]) -> tuple[tuple[Json, ...], dict[str, Tool]]:
    """The tool objects for the echo, and every tool by its place, those in namespaces included.

    Tools of unknown and hosted types are echoed as they are and not offered to the model (D-07).

    Raises:
        InvalidRequestError: one is not an object with a type, or a callable one has no name.
    """
    by_place: dict[str, Tool] = {}
    echo = tuple(_read(tool, f"tools[{index}]", by_place) for index, tool in enumerate(given))
    for kind in logged(tool.type for tool in by_place.values() if isinstance(tool, HostedTool)):
        log.info("[responses] ignoring tools of type %s", kind)
    return echo, by_place


def _read(given: Any, at: str, by_place: dict[str, Tool]) -> Json:
    """The tool as it is echoed; it and its members are added to `by_place`."""
    match given:
        case {"type": "function"}:
            by_place[at] = function = typed(_flat(given), FunctionTool, at)
            return {"type": "function"} | asdict(function)
        case {"type": "custom"}:
            by_place[at] = typed(given, CustomTool, at)
            return dict(given)
        case {"type": "namespace"}:
            by_place[at] = namespace = typed(given, NamespaceTool, at)
            places = ((f"{at}.tools[{index}]", tool) for index, tool in enumerate(namespace.tools or ()))
            return {**given, "tools": [_read(tool, place, by_place) for place, tool in places]}
        case _:
            by_place[at] = typed(given, HostedTool, at)
            return dict(given)


def _flat(given: Json) -> Json:
    """A function whose fields stand one level deeper, as Chat Completions nests them, in the flat form."""
    nested = given.get("function")
    return nested | {"type": "function"} if "name" not in given and isinstance(nested, dict) else given

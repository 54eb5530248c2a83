"""The tools of a request: checked, and echoed in the form the schema wants."""

import logging
from collections.abc import Iterator
from typing import Any

from turnlog.adapters.openai.limits import RequestLimits, check_count
from turnlog.adapters.openai.shown import shown
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.schemas import check_schema

log = logging.getLogger("turnlog")

Json = dict[str, Any]


def read_tools(given: Any, added: list[Any], *, limits: RequestLimits) -> tuple[Json, ...]:
    """The tool objects of the request; those of unknown and hosted types are kept for the echo (D-07).

    Args:
        given: the field `tools`.
        added: the tools that `additional_tools` items bring.

    Raises:
        InvalidRequestError: `tools` is no list of objects, a callable one has no name, or a limit is broken.
    """
    if given is None:
        given = []
    if not isinstance(given, list):
        raise InvalidRequestError("tools must be a list", param="tools")
    tools = tuple(_read(tool, f"tools[{index}]") for index, tool in enumerate([*given, *added]))
    check_count(list(_opened(tools)), limits.tools, "tools")
    for tool in _opened(tools):
        _check_size(tool, limits)
    for kind in shown({str(tool["type"]) for tool in tools} - {"function", "custom", "namespace"}):
        log.info("[responses] tools of type %r are not offered to the model", kind)
    return tools


def _opened(tools: tuple[Json, ...] | list[Json]) -> Iterator[Json]:
    """Every tool, those in namespaces too."""
    for tool in tools:
        yield tool
        if tool["type"] == "namespace":
            yield from _opened(tool["tools"])


def _check_size(tool: Json, limits: RequestLimits) -> None:
    for key in ("type", "name"):
        limits.check_name(tool.get(key), f"a tool's {key}", param="tools")
    if tool["type"] == "function" and tool["parameters"] is not None:
        check_schema(
            tool["parameters"],
            f"The parameters schema of the tool '{tool['name']}'",
            most_bytes=limits.schema_bytes,
            most_levels=limits.schema_depth,
            param="tools",
        )


def _read(tool: Any, at: str) -> Json:
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise InvalidRequestError(f"{at} must be an object with a type", param="tools")
    match tool["type"]:
        case "function":
            return _function(tool, at)
        case "custom":
            return {**tool, "name": _name(tool, at)}
        case "namespace":
            members = tool.get("tools") or []
            if not isinstance(members, list):
                raise InvalidRequestError(f"{at}.tools must be a list", param="tools")
            read = [_read(member, f"{at}.tools[{index}]") for index, member in enumerate(members)]
            return {**tool, "name": _name(tool, at), "tools": read}
        case _:
            return tool


def _function(tool: Json, at: str) -> Json:
    """A function with every field that the schema requires of an echoed one."""
    # Chat Completions nest the function one level deeper; some clients still send that.
    if "name" not in tool and isinstance(tool.get("function"), dict):
        tool = {"type": "function", **tool["function"]}
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidRequestError(f"{at}.parameters must be a JSON schema object", param="tools")
    strict, description = tool.get("strict"), tool.get("description")
    return {
        "type": "function",
        "name": _name(tool, at),
        "description": description if isinstance(description, str) else None,
        "parameters": parameters,
        "strict": strict if isinstance(strict, bool) else None,
    }


def _name(tool: Json, at: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequestError(f"{at}.name must be a non-empty string", param="tools")
    return name

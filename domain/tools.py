"""The tools of a turn: what the client brings, what the engine sees of it, and whose a call is.

Clients bring functions, custom (freeform) tools, namespaces of both, and hosted tools that only their own
platform can run. The engine sees functions with plain names: a namespace's member as `namespace__name`, a
custom tool as a function of one string. A call comes back under the names the client knows (D-07).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from turnlog.domain.characters import read_json
from turnlog.domain.errors import InvalidRequestError

Json = dict[str, Any]

ToolKind = Literal["function", "custom"]
ChoiceMode = Literal["none", "auto", "required"]

CUSTOM_PARAMETERS: Json = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""What a custom tool takes, as the engine sees it."""


class Tool(Struct, frozen=True):
    """A tool the engine may call. `name` is the engine's, `member` and `namespace` are the client's."""

    name: str
    kind: ToolKind
    member: str
    namespace: str | None = None
    description: str | None = None
    parameters: Json | None = None


class ToolChoice(Struct, frozen=True):
    """Whether the model may, must or must not call; `names` are the tools it is limited to, if it is."""

    mode: ChoiceMode = "auto"
    names: tuple[str, ...] | None = None


class Called(Struct, frozen=True):
    """A call under the names the client knows."""

    kind: ToolKind
    name: str
    namespace: str | None = None


class Toolbox:
    """The callable tools of a turn, those offered under its `tool_choice` and how a call is named.

    Args:
        tools: the tool objects of the request, as the client sent them; hosted and unknown ones are passed
            over, `skipped` has their types.
    """

    def __init__(self, tools: Sequence[Json], choice: ToolChoice) -> None:
        self.choice = choice
        self.skipped = [str(tool.get("type")) for tool in tools if tool.get("type") not in _CALLABLE]
        known: dict[str, Tool] = {}
        for tool in callable_tools(tools):
            known.setdefault(tool.name, tool)
        self._known = known
        self.offered = () if choice.mode == "none" else tuple(_limited(known.values(), choice))

    @property
    def forced(self) -> bool:
        """Whether the turn must end in a call."""
        return self.choice.mode == "required"

    def called(self, name: str) -> Called:
        """Whose tool the engine calls by `name`: its own name, or a member's bare one if only one has it."""
        tool = self._known.get(name)
        if tool is None:
            bare = [tool for tool in self._known.values() if tool.member == name]
            tool = bare[0] if len(bare) == 1 else None
        return Called(tool.kind, tool.member, tool.namespace) if tool else Called("function", name)


_CALLABLE = ("function", "custom", "namespace")


def engine_name(name: str, namespace: str | None) -> str:
    """The name by which the engine knows a tool."""
    return f"{namespace}__{name}" if namespace else name


def custom_arguments(text: str) -> str:
    """A custom tool's input as the arguments of the function that the engine sees."""
    return msgspec.json.encode({"input": text}).decode()


def custom_input(arguments: str) -> str:
    """A custom tool's input from the engine's arguments; as they are if they have another form."""
    try:
        return msgspec.convert(read_json(arguments), _CustomArguments).input
    except (ValueError, RecursionError):
        return arguments


class _CustomArguments(Struct):
    input: str


def callable_tools(tools: Iterable[Json], namespace: str | None = None) -> Iterator[Tool]:
    """The tools that can be called, namespaces opened."""
    for tool in tools:
        match tool.get("type"):
            case "namespace":
                yield from callable_tools(tool.get("tools") or (), tool["name"])
            case "function" | "custom" as kind:
                yield Tool(
                    name=engine_name(tool["name"], namespace),
                    kind=kind,
                    member=tool["name"],
                    namespace=namespace,
                    description=tool.get("description"),
                    parameters=CUSTOM_PARAMETERS if kind == "custom" else tool.get("parameters"),
                )


def read_choice(given: Any, tools: Sequence[Json]) -> ToolChoice:
    """The request's `tool_choice` in all its forms (R-174, D-08).

    Raises:
        InvalidRequestError: it has another form, or names or needs a tool that is not there.
    """
    known = list(callable_tools(tools))
    match given:
        case None | "auto":
            return ToolChoice()
        case "none":
            return ToolChoice("none")
        case "required":
            choice = ToolChoice("required")
        case {"type": "allowed_tools", "tools": list() as allowed, **rest}:
            mode: ChoiceMode = "required" if rest.get("mode") == "required" else "auto"
            choice = ToolChoice(mode, tuple(_named(each, known) for each in allowed if _is_named(each)))
        case {"type": "function" | "custom"}:
            choice = ToolChoice("required", (_named(given, known),))
        case {"type": str()}:
            # A hosted tool, which is not offered: the model is free to do without.
            return ToolChoice()
        case _:
            raise InvalidRequestError(
                "tool_choice must be none, auto, required, a tool or allowed_tools", param="tool_choice"
            )
    if choice.mode == "required" and not list(_limited(known, choice)):
        raise InvalidRequestError(
            "tool_choice requires a call, but there is no tool to call", param="tool_choice"
        )
    return choice


def _is_named(each: Any) -> bool:
    return isinstance(each, dict) and each.get("type", "function") in ("function", "custom")


def _named(given: Json, known: Sequence[Tool]) -> str:
    """The engine's name of the tool a choice names."""
    # Chat Completions nest the name one level deeper; some clients still send that.
    inner = given.get("function")
    name = given.get("name") or (inner.get("name") if isinstance(inner, dict) else None)
    namespace = given.get("namespace")
    for tool in known:
        if name in (tool.name, tool.member) and namespace in (None, tool.namespace):
            return tool.name
    raise InvalidRequestError(
        f"tool_choice names '{name}', which is not among the tools", param="tool_choice"
    )


def _limited(tools: Iterable[Tool], choice: ToolChoice) -> Iterator[Tool]:
    return (tool for tool in tools if choice.names is None or tool.name in choice.names)

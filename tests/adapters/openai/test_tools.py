"""The tools of a request: echoed whole, offered if they can be called, and chosen in every form."""

from typing import Any

import pytest

from tests.adapters.openai.asking import ADD, FUNCTION, decode, refusal
from turnlog.domain.tools import Toolbox, ToolChoice

NAMED = {"type": "function", "name": "add"}


def test_tools_are_echoed_whole_and_only_callable_ones_are_offered(caplog: pytest.LogCaptureFixture) -> None:
    """R-174, R-175, D-07, A1, A2, A5, A6, T2-34."""
    hosted = {"type": "web_search", "filters": {}}
    unknown = {"type": f"tl_{'k' * 43}"}
    custom = {"type": "custom", "name": "patch", "format": {"type": "text"}}
    namespace = {"type": "namespace", "name": "fs", "tools": [FUNCTION | {"name": "read"}]}
    nested = {"type": "function", "function": {"name": "sub", "description": "Subtract."}}

    with caplog.at_level("INFO"):
        request = decode(tools=[FUNCTION, hosted, hosted, custom, namespace, nested, unknown])

    sub = {"type": "function", "name": "sub", "description": "Subtract.", "parameters": None, "strict": None}
    members = [ADD | {"name": "read"}]
    assert request.tools == (ADD, hosted, hosted, custom, namespace | {"tools": members}, sub, unknown)
    offered = Toolbox(request.tools, request.choice).offered
    assert [(tool.name, tool.kind) for tool in offered] == [
        ("add", "function"),
        ("patch", "custom"),
        ("fs__read", "function"),
        ("sub", "function"),
    ]
    assert [record.message for record in caplog.records] == [
        "[responses] ignoring tools of type unknown (46 characters)",
        "[responses] ignoring tools of type web_search",
    ]


@pytest.mark.parametrize(
    "tools",
    ["all", [7], [{}], [{"type": 7}], [{"type": "function"}], [{"type": "function", "name": ""}],
     [{"type": "custom"}], [{"type": "namespace"}], [{"type": "namespace", "name": "n", "tools": 7}],
     [FUNCTION | {"parameters": []}]],
)  # fmt: skip
def test_tools_that_cannot_be_read_are_refused(tools: Any) -> None:
    """R-174, R-175."""
    assert refusal(tools=tools).param == "tools"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        (NAMED, ToolChoice("required", ("add",))),
        ({"type": "function", "function": {"name": "add"}}, ToolChoice("required", ("add",))),
        ({"type": "function", "name": "read"}, ToolChoice("required", ("fs__read",))),
        ({"type": "function", "name": "read", "namespace": "fs"}, ToolChoice("required", ("fs__read",))),
        ({"type": "web_search"}, ToolChoice()),
        ({"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}, ToolChoice("auto", ("add",))),
        ({"type": "allowed_tools", "mode": "required", "tools": [NAMED]}, ToolChoice("required", ("add",))),
        ({"type": "allowed_tools", "tools": [NAMED, {"type": "mcp"}]}, ToolChoice("auto", ("add",))),
    ],
)
def test_a_tool_choice_is_understood_in_every_form(given: Any, expected: ToolChoice) -> None:
    """R-174, D-08."""
    namespace = {"type": "namespace", "name": "fs", "tools": [FUNCTION | {"name": "read"}]}

    assert decode(tools=[FUNCTION, namespace], tool_choice=given).choice == expected


@pytest.mark.parametrize("given", [{"type": "function", "name": "sub"}, "all", 7, [], {"name": "add"}])
def test_a_tool_choice_that_cannot_be_met_is_refused(given: Any) -> None:
    """D-08."""
    error = refusal(tools=[FUNCTION], tool_choice=given)

    assert error.param == "tool_choice"


@pytest.mark.parametrize("tools", [[], [{"type": "web_search"}]])
def test_a_call_cannot_be_required_without_a_tool(tools: list[Any]) -> None:
    assert refusal(tools=tools, tool_choice="required").param == "tool_choice"

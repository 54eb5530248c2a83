"""The JavaScript clients: programs in `js/` run them against a server and print what they made of it.

`make clients` installs them and runs this; the ordinary run leaves them out.
"""

import json
import os
import subprocess
from typing import Any, Final

import pytest

from tests.app.scripts import Json
from tests.clients.npm import JS, node
from tests.serving import LONG_S, RunningServer

pytestmark = pytest.mark.clients


def told(program: str, server: RunningServer) -> Json:
    """What the program prints: by the name of what was tried, what its client made of it."""
    done = subprocess.run(
        [node(), program],
        cwd=JS,
        env={"PATH": os.environ["PATH"], "SERVER_URL": server.address},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed: Json = json.loads(done.stdout)
    return printed


def test_the_official_client_runs_turns_and_tool_loops(server: RunningServer) -> None:
    """A6, A13, B2, B5, B19, C1, C20, C21, C22, F1: whole, streamed, kept by the server and sent again."""
    two_calls: list[list[Any]] = [
        ["function_call", "add", {"a": 1, "b": 2}],
        ["function_call", "add", {"a": 3, "b": 4}],
        ["message", "They make 3 and 7."],
    ]
    reasoning_and_call: list[list[Any]] = [
        ["reasoning", "A sum."],
        ["function_call", "add", {"a": 1, "b": 2}],
        ["message", "1 and 2 make 3."],
    ]

    assert told("openai_sdk.mjs", server) == {
        "text": "Hello",
        "deltas": ["Hel", "lo"],
        "reasoning": [["reasoning", "let me see"], ["message", "Thought through."]],
        "parsed": {"city": "Paris", "degrees": 21},
        "retrieved": "Hello",
        "loop, kept": two_calls,
        "loop, sent again": reasoning_and_call,
        "loop, streamed and kept": reasoning_and_call,
        "loop, streamed and sent again": two_calls,
        "namespace": [["function_call", "math", "add", {"a": 1, "b": 2}], ["message", "1 and 2 make 3."]],
        "custom": [["custom_tool_call", "shout", "hello"], ["message", "Shouted."]],
        "failing": {"thrown": "500 it broke"},
        "failing, streamed": {"thrown": "it broke"},
    }


TEXT: Final[list[Json]] = [{"text": "Hello", "finish": "stop"}]

REASONING: Final[list[Json]] = [{"reasoning": "let me see", "text": "Thought through.", "finish": "stop"}]

TWO_CALLS: Final[list[Json]] = [
    {
        "calls": [["add", {"a": 1, "b": 2}], ["add", {"a": 3, "b": 4}]],
        "results": ["the sum is 3", "the sum is 7"],
        "finish": "tool-calls",
    },
    {"text": "They make 3 and 7.", "finish": "stop"},
]

REASONING_AND_CALL: Final[list[Json]] = [
    {
        "reasoning": "A sum.",
        "calls": [["add", {"a": 1, "b": 2}]],
        "results": ["the sum is 3"],
        "finish": "tool-calls",
    },
    {"text": "1 and 2 make 3.", "finish": "stop"},
]

AI_SDK: Final[Json] = {
    "text": TEXT,
    "text, streamed": TEXT,
    "reasoning": REASONING,
    "reasoning, streamed": REASONING,
    "loop": TWO_CALLS,
    "loop, streamed": TWO_CALLS,
    "loop with reasoning": REASONING_AND_CALL,
    "loop with reasoning, streamed": REASONING_AND_CALL,
    "object": {"city": "Paris", "degrees": 21},
    "conversation": ["1 and 2 make 3.", "That makes 10."],
}
"""What every provider of the AI SDK makes of the script."""


def test_the_ai_sdk_runs_turns_and_tool_loops(server: RunningServer) -> None:
    """B1, B19, C1, C19, C22, F1: it sends what is kept as `item_reference`, calls without id or status."""
    more = {
        "custom": [[["shout", "hello"]], "Shouted."],
        "conversation, not stored": ["1 and 2 make 3.", "That makes 10."],
    }

    assert told("ai_sdk_openai.mjs", server) == AI_SDK | more


def test_the_ai_sdk_for_open_responses_runs_turns_and_tool_loops(server: RunningServer) -> None:
    """B1, B5, C1, C19, C22, F1."""
    assert told("ai_sdk_open_responses.mjs", server) == AI_SDK


def test_the_official_client_has_every_method_of_responses(server: RunningServer) -> None:
    """D-02, D-40."""
    assert told("openai_sdk_responses.mjs", server) == {
        "background": ["queued", "Hello"],
        "background, dropped and resumed": [
            ["response.created", "response.queued", "response.in_progress"],
            True,
        ],
        "background, by the streaming aid": "Hello",
        "cancelled": ["cancelled", "cancelled"],
        "cancelled, by the streaming aid": "cancelled",
        "deleted": True,
        "input items": ["user", "assistant", "user"],
        "input tokens": True,
    }


def test_the_official_client_speaks_chat_completions(server: RunningServer) -> None:
    """C1, F1: whole, streamed, with tools, stored; a failure after the first byte is thrown."""
    assert told("openai_sdk_chat.mjs", server) == {
        "deltas": ["", "Hel", "lo", "stop"],
        "reasoning": "let me see",
        "parsed": {"city": "Paris", "degrees": 21},
        "stored": [True, {"of": "nobody"}, True],
        "loop": ["the sum is 3", "the sum is 7", "They make 3 and 7.", "stop"],
        "loop, streamed": ["the sum is 3", "1 and 2 make 3.", "stop"],
        "runner": "They make 3 and 7.",
        "failing": {"thrown": "500 it broke"},
        "failing, streamed": {"thrown": "it broke"},
        "failing, by the streaming aid": {"thrown": "it broke"},
    }


def test_the_ai_sdk_speaks_chat_completions(server: RunningServer) -> None:
    """C1, F1. Its provider for OpenAI shows no reasoning of this API."""
    spoken = {
        name: [{key: value for key, value in step.items() if key != "reasoning"} for step in trial]
        if isinstance(trial, list) and isinstance(trial[0], dict)
        else trial
        for name, trial in AI_SDK.items()
    }

    assert told("ai_sdk_chat.mjs", server) == spoken

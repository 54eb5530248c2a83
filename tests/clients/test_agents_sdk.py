"""The OpenAI Agents SDK: its runner's loop, whole and streamed, with the tools and histories it sends."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from agents import (
    Agent,
    CustomTool,
    ItemHelpers,
    MessageOutputItem,
    ModelSettings,
    OpenAIResponsesModel,
    ReasoningItem,
    RunConfig,
    RunItem,
    Runner,
    ToolCallItem,
    ToolCallOutputItem,
    TResponseInputItem,
    function_tool,
    tool_namespace,
)
from openai import APIError, AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel

from tests.serving import RunningServer

# The SDK would send traces to OpenAI.
OFFLINE: Final = RunConfig(tracing_disabled=True)


class Weather(BaseModel):
    """What the agent is asked to answer with."""

    city: str
    degrees: int


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"


async def shout(_context: Any, text: str) -> str:
    """Say it loudly."""
    return text.upper()


@pytest.fixture
async def model(server: RunningServer) -> AsyncIterator[OpenAIResponsesModel]:
    """The model as the SDK's users configure it for a server of their own."""
    async with AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        yield OpenAIResponsesModel(model="scripted", openai_client=client)


def told(items: list[RunItem]) -> list[tuple[str, Any]]:
    """What each item of a run says."""
    return [_told(item) for item in items]


def _told(item: RunItem) -> tuple[str, Any]:
    match item:
        case MessageOutputItem():
            return ("message", ItemHelpers.text_message_output(item))
        case ToolCallItem():
            return ("call", item.tool_name)
        case ToolCallOutputItem():
            return ("output", item.output)
        case ReasoningItem():
            return ("reasoning", [part.text for part in item.raw_item.summary])
        case _:
            raise AssertionError(f"no agent asked for {item}")


async def test_an_agent_answers(model: OpenAIResponsesModel) -> None:
    agent = Agent(name="Ada", instructions="Be kind.", model=model)

    result = await Runner.run(agent, "hi", run_config=OFFLINE)

    assert result.final_output == "Hello"
    assert result.context_wrapper.usage.requests == 1
    assert result.context_wrapper.usage.output_tokens == 2


@pytest.mark.parametrize(
    ("question", "items"),
    [
        (
            "add 1 and 2",
            [("call", "add"), ("output", "the sum is 3"), ("message", "1 and 2 make 3.")],
        ),
        (
            "add both pairs",
            [
                ("call", "add"),
                ("call", "add"),
                ("output", "the sum is 3"),
                ("output", "the sum is 7"),
                ("message", "They make 3 and 7."),
            ],
        ),
        (
            "think, then add",
            [
                ("reasoning", ["A sum."]),
                ("call", "add"),
                ("output", "the sum is 3"),
                ("message", "1 and 2 make 3."),
            ],
        ),
    ],
    ids=["one call", "two calls", "reasoning and a call"],
)
async def test_a_run_with_a_tool_completes(
    model: OpenAIResponsesModel, question: str, items: list[tuple[str, Any]]
) -> None:
    """B3, B5: the history that the SDK sends is taken, whole and streamed."""
    agent = Agent(name="Ada", instructions="Use the tool.", model=model, tools=[add])

    whole = await Runner.run(agent, question, run_config=OFFLINE)
    streamed = Runner.run_streamed(agent, question, run_config=OFFLINE)
    deltas = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]

    assert told(whole.new_items) == items
    # Streamed calls are told as they come, so the output of one may precede the next.
    assert sorted(map(repr, told(streamed.new_items))) == sorted(map(repr, items))
    assert "".join(deltas) == streamed.final_output == whole.final_output == items[-1][1]


async def test_a_conversation_goes_on_by_history_or_by_id(model: OpenAIResponsesModel) -> None:
    """B1, B3, E1: the SDK's two ways to keep a conversation."""
    agent = Agent(name="Ada", model=model, tools=[add])
    first = await Runner.run(agent, "add 1 and 2", run_config=OFFLINE)

    again: list[TResponseInputItem] = [*first.to_input_list(), {"role": "user", "content": "add on"}]
    by_history = await Runner.run(agent, again, run_config=OFFLINE)
    by_id = await Runner.run(agent, "add on", previous_response_id=first.last_response_id, run_config=OFFLINE)

    assert (by_history.final_output, by_id.final_output) == ("That makes 10.", "That makes 10.")
    assert by_history.context_wrapper.usage.input_tokens == by_id.context_wrapper.usage.input_tokens, (
        "the model reads the same either way"
    )


async def test_a_run_that_is_not_stored_completes(model: OpenAIResponsesModel) -> None:
    """B19: ids of responses that nobody keeps come back in the history."""
    settings = ModelSettings(store=False, include_usage=True)
    agent = Agent(name="Ada", model=model, tools=[add], model_settings=settings)

    result = await Runner.run(agent, "think, then add", run_config=OFFLINE)

    assert result.final_output == "1 and 2 make 3."


async def test_an_output_type_is_read_from_json(model: OpenAIResponsesModel) -> None:
    """F1, F3."""
    agent = Agent(name="Ada", model=model, output_type=Weather)

    result = await Runner.run(agent, "weather as JSON", run_config=OFFLINE)

    assert result.final_output == Weather(city="Paris", degrees=21)


async def test_a_tool_in_a_namespace_is_found_by_the_runner(model: OpenAIResponsesModel) -> None:
    """D-07, A2, A13: the runner looks a call up by namespace and name."""
    tools = tool_namespace(name="math", description="Sums.", tools=[add])
    agent = Agent(name="Ada", model=model, tools=[*tools])

    result = await Runner.run(agent, "add by namespace", run_config=OFFLINE)

    assert told(result.new_items) == [
        ("call", "add"),
        ("output", "the sum is 3"),
        ("message", "1 and 2 make 3."),
    ]


async def test_a_custom_tool_is_run_on_plain_text(model: OpenAIResponsesModel) -> None:
    """D-07, A6, A10, A11."""
    tool = CustomTool(name="shout", description="Say it loudly.", on_invoke_tool=shout)
    agent = Agent(name="Ada", model=model, tools=[tool])

    result = await Runner.run(agent, "shout hello", run_config=OFFLINE)

    assert told(result.new_items) == [("call", "shout"), ("output", "HELLO"), ("message", "Shouted.")]


async def test_a_failed_turn_ends_the_run_in_the_words_of_the_server(model: OpenAIResponsesModel) -> None:
    """D-05, D-32, D3."""
    agent = Agent(name="Ada", model=model)

    with pytest.raises(APIError, match="it broke"):
        await Runner.run(agent, "boom", run_config=OFFLINE)
    streamed = Runner.run_streamed(agent, "boom", run_config=OFFLINE)
    with pytest.raises(APIError, match="it broke"):
        [event async for event in streamed.stream_events()]

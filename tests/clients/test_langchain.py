"""LangChain's `ChatOpenAI` on the Responses API: answers, streams, tools and the histories it sends."""

from collections.abc import Iterable
from typing import Any, Final

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import APIError
from pydantic import BaseModel, SecretStr

from tests.clients.script import TOOL_LOOPS
from tests.serving import RunningServer


class Weather(BaseModel):
    """What the model is asked to answer with."""

    city: str
    degrees: int


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"


def chat(server: RunningServer, **settings: Any) -> ChatOpenAI:
    """The model as its users configure it for a server of their own."""
    return ChatOpenAI(
        model="scripted",
        base_url=f"{server.address}/v1",
        api_key=SecretStr("none"),
        use_responses_api=True,
        max_retries=0,
        **settings,
    )


def chunks_of(stream: Iterable[AIMessage]) -> list[AIMessageChunk]:
    """What is streamed. LangChain declares it as any message."""
    return [chunk for chunk in stream if isinstance(chunk, AIMessageChunk)]


def whole(stream: Iterable[AIMessage]) -> AIMessageChunk:
    """A stream, added up as its users do."""
    first, *rest = chunks_of(stream)
    return sum(rest, start=first)


def reasoning_of(message: AIMessage) -> str:
    """The thinking that is shown to the user."""
    return "".join(block["reasoning"] for block in message.content_blocks if block["type"] == "reasoning")


def run(server: RunningServer, history: list[AnyMessage], *, stream: bool, **settings: Any) -> list[str]:
    """The loop that its users write: until no tool is called. Returns what the tools and the model said."""
    model = chat(server, **settings).bind_tools([add])
    told: list[str] = []
    while True:
        answer = whole(model.stream(history)) if stream else model.invoke(history)
        history.append(answer)
        if not answer.tool_calls:
            return [*told, answer.text]
        for call in answer.tool_calls:
            output = add.invoke(call)
            assert isinstance(output, ToolMessage)
            history.append(output)
            told.append(output.text)


both_ways: Final = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def test_a_model_answers(server: RunningServer) -> None:
    answer = chat(server).invoke("hi")

    assert answer.text == "Hello"
    assert answer.usage_metadata
    assert answer.usage_metadata["output_tokens"] == 2
    assert answer.response_metadata["status"] == "completed"


async def test_a_model_streams(server: RunningServer) -> None:
    model = chat(server)

    chunks = chunks_of(model.stream("hi"))
    async_texts = [chunk.text async for chunk in model.astream("hi") if chunk.text]

    assert [chunk.text for chunk in chunks if chunk.text] == ["Hel", "lo"]
    assert async_texts == ["Hel", "lo"]
    usage = whole(chunks).usage_metadata
    assert usage
    assert usage["output_tokens"] == 2


@both_ways
@pytest.mark.parametrize(
    ("question", "said"),
    TOOL_LOOPS,
    ids=["one call", "two calls", "reasoning and a call"],
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"store": False},
        {"output_version": "v0"},
        {"output_version": "v1"},
        {"use_previous_response_id": True},
    ],
    ids=["as it comes", "not stored", "v0", "v1", "by id"],
)
def test_a_tool_loop_ends_with_an_answer(
    server: RunningServer, question: str, said: list[str], settings: dict[str, Any], *, stream: bool
) -> None:
    """B2, B4, B5, C22: in every form LangChain keeps and sends a history."""
    history: list[AnyMessage] = [SystemMessage("Use the tool."), HumanMessage(question)]

    assert run(server, history, stream=stream, **settings) == said


@both_ways
def test_a_conversation_goes_on_after_a_tool_loop(server: RunningServer, *, stream: bool) -> None:
    """B1, B4: answers, calls and their outputs in the history."""
    history: list[AnyMessage] = [HumanMessage("add 1 and 2")]
    said = run(server, history, stream=stream)

    history.append(HumanMessage("add on"))
    said += run(server, history, stream=stream)

    assert said == ["the sum is 3", "1 and 2 make 3.", "the sum is 10", "That makes 10."]


def test_a_history_of_plain_texts_is_taken(server: RunningServer) -> None:
    """B1, B4: assistant text that never came from this server."""
    history = [
        SystemMessage("Be kind."),
        HumanMessage("I am Ada."),
        AIMessage("Hello, Ada."),
        HumanMessage("who am I"),
    ]

    assert chat(server).invoke(history).text == "You are Ada."


@both_ways
def test_reasoning_reaches_the_user(server: RunningServer, *, stream: bool) -> None:
    """C24: also from a stream."""
    model = chat(server, reasoning={"effort": "high", "summary": "auto"})

    answer = whole(model.stream("think")) if stream else model.invoke("think")

    assert (reasoning_of(answer), answer.text) == ("let me see", "Thought through.")


def test_json_text_is_parsed_into_a_model(server: RunningServer) -> None:
    """F1."""
    model = chat(server).with_structured_output(Weather, method="json_schema")

    assert model.invoke("weather as JSON") == Weather(city="Paris", degrees=21)


def test_a_failure_is_raised_in_the_words_of_the_server(server: RunningServer) -> None:
    """D-05, D-32, D3."""
    model = chat(server)

    with pytest.raises(APIError, match="it broke"):
        model.invoke("boom")
    with pytest.raises(APIError, match="it broke"):
        list(model.stream("boom"))
